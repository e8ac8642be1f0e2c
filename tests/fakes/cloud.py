"""EC2 with state and with its bad habits, behind the engine's cloud port.

Capacity pools, partial launches, request rates, lists that lag behind, answers that are lost,
calls that take effect after they have failed, interruptions. It enforces what EC2 enforces and
counts what it is asked, so that tests can state laws about the engine instead of scripting calls.
Its time is true time, which the head node's wall clock may disagree with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins import identity, tags
from slurmplugins.cloud import codes, spec
from slurmplugins.health import Health, ScheduledEvent
from slurmplugins.model import Instance, InstanceState, Launched, Refusal
from toolkit.local.layer.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.errors import CloudError
    from slurmplugins.model import LaunchRequest, Offering
    from slurmplugins.names import NodeName
    from tests.fakes.clock import FakeClock

REGION = "us-east-1"
BOOT_SECONDS = 8.0
END_SECONDS = 5.0
FORGET_SECONDS = 3600.0
"""EC2 lists a terminated instance for about an hour."""

TERMINATED = InstanceState.TERMINATED
USER_SHUTDOWN = "Client.UserInitiatedShutdown"
SPOT_TERMINATION = "Server.SpotInstanceTermination"


@dataclass
class Machine:
    instance: Instance
    cluster: str
    visible_at: float
    over_at: float | None = None
    tags: dict[str, str] = field(default_factory=dict)
    was: NodeName | None = None
    given_at: float = -math.inf


@dataclass
class Late:
    """A launch whose caller has been told that it failed, and that happens all the same."""

    due: float
    request: LaunchRequest


class FakeCloud:
    """`capacity` maps offering keys to machines left; an absent key has no limit.

    `lag`: seconds a new machine is missing from lists; `stale`: seconds an ended one is still
    listed as it was; `tag_lag`: seconds one that was given is listed under its old name.
    `lose_answers`, `late_effects`, `partials`: how many of the next launches lose their answer,
    happen `delay` seconds after it was lost, or find capacity for half.
    `next_errors`: what the next launches are answered, having done nothing; None: what comes of
    them. `next_list_errors`: the next lists. `lose_gifts`: how many of the next renamings happen
    and are not answered.
    """

    def __init__(self, cluster: str, clock: FakeClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.capacity: dict[str, int] = {}
        self.refusals: dict[str, str] = {}
        self.machines: dict[str, Machine] = {}
        self.requests: list[LaunchRequest] = []
        self.calls: list[str] = []
        self.lag = 0.0
        self.stale = 0.0
        self.tag_lag = 0.0
        self.next_errors: list[CloudError | None] = []
        self.next_list_errors: list[CloudError] = []
        self.next_give_errors: list[CloudError] = []
        self.lose_answers = 0
        self.lose_gifts = 0
        self.late_effects = 0
        self.delay = 20.0
        self.partials = 0
        self.unreadable = False
        self.health_unreadable = False
        self.troubles: dict[str, Health] = {}
        self.consoles: dict[str, str] = {}
        self.launch_templates: set[str] = set()
        self.subnets: set[str] = set()
        self.throttle = Throttle(clock.monotonic, enabled=False)
        self._tokens: dict[str, tuple[list[str], tuple[Refusal, ...]]] = {}
        self._late: dict[str, Late] = {}
        self._made = 0

    # The port

    def launch(self, request: LaunchRequest, intend: Callable[[], None]) -> Launched:
        intend()
        action = "CreateFleet" if request.others else "RunInstances"
        self._called("launch", action, len(request.nodes))
        sent = (spec.create_fleet if request.others else spec.run_instances)(request)
        if self.next_errors and (error := self.next_errors.pop(0)):
            raise error
        self._check(request)
        token = sent["ClientToken"]
        if self.late_effects and token not in self._tokens:
            self.late_effects -= 1
            self._late[token] = Late(self.clock.monotonic() + self.delay, request)
            raise codes.error("Unreachable", "the answer was lost, and the call not yet done")
        self._late.pop(token, None)
        self._once(token, request, self.clock.monotonic())
        if self.lose_answers:
            self.lose_answers -= 1
            raise codes.error("Unreachable", "the answer was lost")
        ids, refusals = self._tokens[token]
        found = [self._described(self.machines[item]) for item in ids]
        if found and not request.others and all(m.state is TERMINATED for m in found):
            raise codes.error(
                "IdempotentInstanceTerminated", "Please use a different client token."
            )
        return Launched(tuple(found), refusals)

    def give(self, names: Mapping[str, NodeName], may: Callable[[str], bool]) -> bool:
        for instance_id, node in names.items():
            if not may(instance_id):
                return False
            self._called("give", "CreateTags", 1)
            if self.next_give_errors:
                raise self.next_give_errors.pop(0)
            if instance_id not in self.machines:
                raise codes.error("InvalidInstanceID.NotFound", "no such machine")
            machine = self.machines[instance_id]
            machine.tags[tags.NODE] = node
            machine.was, machine.given_at = machine.instance.node, self.clock.monotonic()
            machine.instance = replace(machine.instance, node=node)
            if self.lose_gifts:
                self.lose_gifts -= 1
                raise codes.error("Unreachable", "the answer was lost")
        return True

    def instances(self) -> tuple[Instance, ...]:
        self._called("instances", "DescribeInstances", 0)
        if self.unreadable:
            raise codes.error("Unreachable", "no answer")
        if self.next_list_errors:
            raise self.next_list_errors.pop(0)
        now = self.clock.monotonic()
        return tuple(
            self._listed(machine, now)
            for machine in self.machines.values()
            if machine.cluster == self.cluster
            and machine.visible_at <= now
            and (machine.over_at is None or now < machine.over_at + FORGET_SECONDS)
        )

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        if not ids:
            self.calls.append("terminate")
            return frozenset()
        self._called("terminate", "TerminateInstances", len(ids))
        if self.unreadable:
            raise codes.error("Unreachable", "no answer")
        over = set()
        for instance_id in ids:
            machine = self.machines.get(instance_id)
            if machine is None or machine.cluster != self.cluster:
                continue
            if machine.visible_at > self.clock.monotonic():
                continue
            self.end(instance_id, USER_SHUTDOWN)
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
        """What really runs, whatever the lists say."""
        self._settle()
        return [item for item in map(self._described, self.machines.values()) if item.state.live]

    def seen_live(self) -> dict[str, str | None]:
        """The machines that a list shows as live now, or can't show at all yet, and their nodes."""
        now = self.clock.monotonic()
        return {
            item.instance.id: item.instance.node
            for item in self.machines.values()
            if item.visible_at > now or self._described(item, stale=self.stale).state.live
        }

    def add(self, instance: Instance, *, cluster: str | None = None) -> None:
        """A machine that was there before."""
        self.machines[instance.id] = Machine(instance, cluster or self.cluster, 0.0)

    def end(self, instance_id: str, code: str, *, after: float = 0.0) -> None:
        machine = self.machines[instance_id]
        due = self.clock.monotonic() + after
        if machine.over_at is None or due < machine.over_at:
            machine.over_at = due
            machine.instance = replace(machine.instance, ended_at=due, end_code=code)

    def interrupt(self, instance_id: str, *, notice: float = 0.0) -> None:
        """EC2 takes a spot machine back, `notice` seconds from now."""
        self.end(instance_id, SPOT_TERMINATION, after=notice)

    def calm(self) -> None:
        """No more trouble: what has happened stays, everything from here on works."""
        self.capacity, self.refusals, self.next_errors = {}, {}, []
        self.next_list_errors = []
        self.lose_answers = self.lose_gifts = self.late_effects = self.partials = 0
        self.lag = self.stale = self.tag_lag = 0.0
        self.unreadable = self.throttle.enabled = False

    def _called(self, name: str, action: str, resources: int) -> None:
        self.calls.append(name)
        self._settle()
        if not self.throttle.allows(REGION, action, filtered=True, resources=resources):
            raise codes.error("RequestLimitExceeded", "Request limit exceeded.")

    def _check(self, request: LaunchRequest) -> None:
        if self.launch_templates and request.launch_template not in self.launch_templates:
            raise codes.error("InvalidLaunchTemplateName.NotFoundException", "no such template")
        if self.subnets and request.subnet not in self.subnets:
            raise codes.error("InvalidSubnetID.NotFound", "no such subnet")

    def _settle(self) -> None:
        """Let the late calls happen that are due."""
        now = self.clock.monotonic()
        for token, late in list(self._late.items()):
            if late.due <= now:
                del self._late[token]
                try:
                    self._once(token, late.request, late.due)
                except Exception:  # noqa: BLE001, S112 - nobody is there to be told
                    continue

    def _once(self, token: str, request: LaunchRequest, at: float) -> None:
        if token not in self._tokens:
            self.requests.append(request)
            self._tokens[token] = self._start(request, at)

    def _start(self, request: LaunchRequest, at: float) -> tuple[list[str], tuple[Refusal, ...]]:
        """Fill from the offerings in their order, as far as each goes; below the least is none."""
        wanted = most = len(request.nodes)
        if self.partials:
            self.partials -= 1
            wanted = most = most // 2
        shares: list[tuple[Offering, int]] = []
        refusals: list[Refusal] = []
        for offering in request.offerings:
            left = self.capacity.get(offering.key, wanted)
            share = 0 if offering.key in self.refusals else min(left, wanted)
            if share < wanted or most < len(request.nodes):
                code = self.refusals.get(offering.key, "InsufficientInstanceCapacity")
                refusals.append(Refusal(offering, codes.error(code, f"no {offering.key} left")))
            shares.append((offering, share))
            wanted -= share
        if most - wanted < request.at_least:
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
            ids += [self._one(request, offering, tag, first + n, at) for n in range(share)]
        # RunInstances says nothing about what it could not do beyond the minimum.
        return ids, tuple(refusals) if request.others else ()

    def _one(
        self,
        request: LaunchRequest,
        offering: Offering,
        tag: dict[str, str],
        index: int,
        at: float,
    ) -> str:
        self._made += 1
        number = self._made
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
            launched_at=at,
        )
        self.machines[instance.id] = Machine(instance, self.cluster, at + self.lag, tags=dict(tag))
        return instance.id

    def _listed(self, machine: Machine, now: float) -> Instance:
        found = self._described(machine, stale=self.stale)
        return replace(found, node=machine.was) if now < machine.given_at + self.tag_lag else found

    def _described(self, machine: Machine, *, stale: float = 0.0) -> Instance:
        now, instance = self.clock.monotonic(), machine.instance
        state = instance.state
        if machine.over_at is not None and now >= machine.over_at + stale:
            ended = now >= machine.over_at + END_SECONDS
            return replace(instance, state=TERMINATED if ended else InstanceState.SHUTTING_DOWN)
        if state is InstanceState.PENDING and now >= instance.launched_at + BOOT_SECONDS:
            state = InstanceState.RUNNING
        return replace(instance, state=state, ended_at=None, end_code="")


class FakeStore:
    """An object store in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, object]] = {}
        self.puts = 0
        self.broken = False

    def create(self, key: str, value: Mapping[str, object]) -> bool:
        if key in self.objects and not self.broken:
            return False
        self.put(key, value)
        return True

    def put(self, key: str, value: Mapping[str, object]) -> None:
        if self.broken:
            raise codes.error("Unreachable", "no answer")
        self.puts += 1
        self.objects[key] = dict(value)

    def get(self, key: str) -> dict[str, object] | None:
        return self.objects.get(key)
