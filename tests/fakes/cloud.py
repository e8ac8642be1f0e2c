"""A cloud with state: capacity, throttles, lost answers, late listings, interruptions.

It enforces what EC2 enforces and counts what it is asked, so that tests can state laws about the
engine instead of scripting calls. Time comes from the test's clock alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins import identity, tags
from slurmplugins.cloud import codes, spec
from slurmplugins.model import Instance, InstanceState, Launched, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.errors import CloudError
    from slurmplugins.model import LaunchRequest, Offering
    from slurmplugins.names import NodeName
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
        self.launch_templates: set[str] = set()
        self.subnets: set[str] = set()
        self.next_give_errors: list[CloudError] = []
        self._tokens: dict[str, tuple[list[str], tuple[Refusal, ...]]] = {}
        self._ids = itertools.count(1)

    # The port

    def launch(self, request: LaunchRequest) -> Launched:
        self.calls.append("launch")
        (spec.create_fleet if request.others else spec.run_instances)(request)
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
        ids, refusals = self._tokens[token]
        return Launched(tuple(self._described(self.machines[item]) for item in ids), refusals)

    def give(self, names: Mapping[str, NodeName]) -> None:
        self.calls.append("give")
        for instance_id, node in names.items():
            if instance_id not in self.machines or self.next_give_errors:
                raise (self.next_give_errors or [codes.error("InvalidInstanceID.NotFound", "")])[0]
            machine = self.machines[instance_id]
            machine.tags[tags.NODE] = node
            machine.instance = replace(machine.instance, node=node)

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

    # The world

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

    def _start(self, request: LaunchRequest) -> tuple[list[str], tuple[Refusal, ...]]:
        """Fill from the offerings in their order, as far as each goes; a minimum missed is none."""
        wanted, shares, refusals = len(request.nodes), [], []
        for offering in request.offerings:
            left = self.capacity.get(offering.key, wanted)
            share = 0 if offering.key in self.refusals else min(left, wanted)
            if share < wanted:
                code = self.refusals.get(offering.key, "InsufficientInstanceCapacity")
                refusals.append(Refusal(offering, codes.error(code, f"no {offering.key} left")))
            shares.append((offering, share))
            wanted -= share
        if len(request.nodes) - wanted < request.at_least:
            if not request.others:
                raise refusals[0].error
            return [], tuple(refusals)
        ids: list[str] = []
        tag = {item["Key"]: item["Value"] for item in spec.tag_list(request)}
        tag.pop(tags.ORDER, None)
        for offering, share in shares:
            if offering.key in self.capacity:
                self.capacity[offering.key] -= share
            first = len(ids)
            ids += [self._one(request, offering, tag, first + at) for at in range(share)]
        # RunInstances says nothing about what it could not do beyond the minimum.
        return ids, tuple(refusals) if request.others else ()

    def _one(
        self, request: LaunchRequest, offering: Offering, tag: dict[str, str], index: int
    ) -> str:
        number = next(self._ids)
        instance_id = f"i-{number:017x}"
        instance = Instance(
            id=instance_id,
            state=InstanceState.PENDING,
            role=tag[tags.ROLE],
            node=identity.node_of(tag, index, instance_id),
            pool=request.pool,
            partition=request.partition,
            attempt=request.attempt,
            type=offering.type,
            zone=offering.zone,
            lifecycle=offering.lifecycle,
            address=f"10.42.{number // 250}.{number % 250 + 1}",
            price=identity.price_of(tag, offering.type),
            launched_at=self.clock.now(),
        )
        visible = self.clock.now() + self.lag
        self.machines[instance.id] = Machine(instance, self.cluster, visible, tags=dict(tag))
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
