"""A cloud with state: capacity, throttles, lost answers, late listings, interruptions.

It enforces what EC2 enforces and counts what it is asked, so that tests can state laws about the
engine instead of scripting calls. Time comes from the test's clock alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins import tags
from slurmplugins.cloud import codes, spec
from slurmplugins.health import Health, ScheduledEvent
from slurmplugins.model import Instance, InstanceState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.errors import CloudError
    from slurmplugins.model import LaunchRequest
    from tests.fakes.clock import FakeClock

BOOT_SECONDS = 8.0
END_SECONDS = 5.0


@dataclass
class Machine:
    instance: Instance
    cluster: str
    visible_at: float
    over_at: float | None = None
    tags: dict[str, str] = field(default_factory=dict)


class FakeCloud:
    """`capacity` maps offering keys to machines left; an absent key has no limit."""

    def __init__(self, cluster: str, clock: FakeClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.capacity: dict[str, int] = {}
        self.refusals: dict[str, str] = {}
        self.machines: dict[str, Machine] = {}
        self.requests: list[LaunchRequest] = []
        self.calls: list[str] = []
        self.lag = 0.0
        self.next_errors: list[CloudError] = []
        self.lose_answers = 0
        self.unreadable = False
        self.health_unreadable = False
        self.troubles: dict[str, Health] = {}
        self.consoles: dict[str, str] = {}
        self.launch_templates: set[str] = set()
        self.subnets: set[str] = set()
        self._tokens: dict[str, list[str]] = {}
        self._ids = itertools.count(1)

    # The port

    def launch(self, request: LaunchRequest) -> tuple[Instance, ...]:
        self.calls.append("launch")
        spec.run_instances(request)
        if self.next_errors:
            raise self.next_errors.pop(0)
        if self.launch_templates and request.launch_template not in self.launch_templates:
            raise codes.error("InvalidLaunchTemplateName.NotFoundException", "no such template")
        if self.subnets and request.subnet not in self.subnets:
            raise codes.error("InvalidSubnetID.NotFound", "no such subnet")
        token = spec.client_token(request.attempt)
        if token not in self._tokens:
            self.requests.append(request)
            self._tokens[token] = self._start(request)
        if self.lose_answers:
            self.lose_answers -= 1
            raise codes.error("Unreachable", "the answer was lost")
        return tuple(self._described(self.machines[item]) for item in self._tokens[token])

    def instances(self) -> tuple[Instance, ...]:
        self.calls.append("instances")
        if self.unreadable:
            raise codes.error("Unreachable", "no answer")
        return tuple(
            self._described(machine)
            for machine in self.machines.values()
            if machine.cluster == self.cluster and machine.visible_at <= self.clock.now()
        )

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        self.calls.append("terminate")
        if self.unreadable:
            raise codes.error("Unreachable", "no answer")
        over = set()
        for instance_id in ids:
            machine = self.machines.get(instance_id)
            if machine is None or machine.cluster != self.cluster:
                continue
            if machine.visible_at > self.clock.now():
                continue
            self.end(instance_id, "Client.UserInitiatedShutdown")
            over.add(instance_id)
        return frozenset(over)

    def health(self) -> tuple[Health, ...]:
        self.calls.append("health")
        if self.unreadable or self.health_unreadable:
            raise codes.error("Unreachable", "no answer")
        return tuple(self.troubles.values())

    def console(self, instance_id: str) -> str:
        self.calls.append("console")
        if self.unreadable:
            raise codes.error("Unreachable", "no answer")
        if instance_id not in self.machines:
            raise codes.error("InvalidInstanceID.NotFound", "no such machine")
        return self.consoles.get(instance_id, "")

    # The world

    def impair(self, instance_id: str) -> None:
        """Its status checks fail from now on."""
        known = self.troubles.get(instance_id, Health(instance_id))
        self.troubles[instance_id] = replace(known, impaired_since=self.clock.now())

    def schedule(self, instance_id: str, code: str, not_before: float) -> None:
        known = self.troubles.get(instance_id, Health(instance_id))
        event = ScheduledEvent(code, not_before)
        self.troubles[instance_id] = replace(known, events=(*known.events, event))

    def give_notice(self, instance_id: str) -> None:
        """EC2 takes the machine back in two minutes."""
        known = self.troubles.get(instance_id, Health(instance_id))
        self.troubles[instance_id] = replace(known, notice=True)

    def live(self) -> list[Instance]:
        return [item for item in map(self._described, self.machines.values()) if item.state.live]

    def add(self, instance: Instance, *, cluster: str | None = None) -> None:
        """A machine that was there before."""
        self.machines[instance.id] = Machine(instance, cluster or self.cluster, 0.0)

    def end(self, instance_id: str, code: str) -> None:
        machine = self.machines[instance_id]
        if machine.over_at is None:
            machine.over_at = self.clock.now()
            machine.instance = replace(machine.instance, ended_at=self.clock.now(), end_code=code)

    def interrupt(self, instance_id: str) -> None:
        """The end of a spot machine, its two minutes over."""
        self.end(instance_id, "Server.SpotInstanceTermination")

    def _start(self, request: LaunchRequest) -> list[str]:
        key = request.offering.key
        if key in self.refusals:
            raise codes.error(self.refusals[key], f"no {key}")
        left = self.capacity.get(key)
        if left is not None and left < len(request.nodes):
            raise codes.error("InsufficientInstanceCapacity", f"no {key} left")
        if left is not None:
            self.capacity[key] = left - len(request.nodes)
        tag = {item["Key"]: item["Value"] for item in spec.tag_list(request)}
        return [self._one(request, tag, index) for index in range(len(request.nodes))]

    def _one(self, request: LaunchRequest, tag: dict[str, str], index: int) -> str:
        number = next(self._ids)
        instance = Instance(
            id=f"i-{number:017x}",
            state=InstanceState.PENDING,
            role=tag[tags.ROLE],
            node=spec.node_of(tag, index),
            pool=request.pool,
            partition=request.partition,
            attempt=request.attempt,
            type=request.offering.type,
            zone=request.offering.zone,
            lifecycle=request.offering.lifecycle,
            address=f"10.42.{number // 250}.{number % 250 + 1}",
            price=request.offering.price,
            launched_at=self.clock.now(),
        )
        visible = self.clock.now() + self.lag
        self.machines[instance.id] = Machine(instance, self.cluster, visible, tags=tag)
        return instance.id

    def _described(self, machine: Machine) -> Instance:
        now, instance = self.clock.now(), machine.instance
        if machine.over_at is not None:
            ended = now >= machine.over_at + END_SECONDS
            state = InstanceState.TERMINATED if ended else InstanceState.SHUTTING_DOWN
        elif instance.state is InstanceState.PENDING:
            running = now >= instance.launched_at + BOOT_SECONDS
            state = InstanceState.RUNNING if running else InstanceState.PENDING
        else:
            state = instance.state
        return replace(instance, state=state)


class FakeStore:
    """An object store in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, object]] = {}
        self.puts = 0
        self.broken = False

    def put(self, key: str, value: Mapping[str, object]) -> None:
        if self.broken:
            raise codes.error("Unreachable", "no answer")
        self.puts += 1
        self.objects[key] = dict(value)

    def get(self, key: str) -> dict[str, object] | None:
        return self.objects.get(key)
