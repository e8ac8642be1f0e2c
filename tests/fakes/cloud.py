"""A stateful EC2 with its bad habits, behind the engine's cloud port.

It plays limited capacity, partial launches, request rates and interruptions. Its lists lag behind,
answers are lost, and calls take effect after they have failed. It enforces the rules that EC2
enforces, and counts its calls. So tests state laws about the engine instead of scripting calls. A
launch is read by `launch_call` from the arguments of the call. Its clock shows the true time; the
head node's wall clock may differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import ec2_messages, error_codes
from slurmplugins.model import hostlist
from slurmplugins.model.instance import (
    Instance,
    InstanceHealth,
    InstanceState,
    Lifecycle,
    ScheduledEvent,
)
from slurmplugins.model.launch import LaunchResult
from tests.fakes import launch_call
from tests.fakes.request_rates import RequestRates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.errors import CloudError
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import LaunchRequest
    from tests.fakes.clock import FakeClock
    from tests.fakes.launch_call import Call, Choice

BOOT_SECONDS = 8.0
END_SECONDS = 5.0
FORGET_SECONDS = 3600.0
"""EC2 lists a terminated instance for about an hour."""

NETWORK_NODES = ("nn-zone1", "nn-row1", "nn-rack1")
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
    """A launch that happens after its caller got an error."""

    due: float
    request: LaunchRequest
    call: Call


@dataclass
class Answer:
    """The answer to a launch call: instance ids, and a fleet's `Errors`."""

    call: Call
    ids: list[str] = field(default_factory=list)
    errors: list[dict[str, object]] = field(default_factory=list)


class FakeCloud:
    """An EC2 whose faults are attributes that tests set.

    - `capacity` maps an offering's key to the number of instances left. A key that is absent has no
      limit.
    - `lag`: so many seconds a new instance is missing from lists.
    - `stale`: so many seconds a terminated instance is still listed in its old state.
    - `tag_lag`: so many seconds a reassigned instance is listed under its old node.
    - `lose_answers`: so many of the next launches happen, and their answer is lost.
    - `late_effects`: so many of the next launches lose their answer, and happen `delay` seconds
      later.
    - `partials`: so many of the next launches find capacity for half.
    - `next_errors`: the errors of the next launches, which then do nothing. None: the launch goes
      on.
    - `next_list_errors`: the errors of the next lists.
    - `lose_gifts`: so many of the next changes of a node's tag happen, and their answer is lost.
    - `end_error`: the error of every termination, which then does nothing.
    - `sent`: the arguments of every launch, also of those that were refused.
    - `network_places`: the network nodes above instances, by id; NETWORK_NODES above others.
    - `places`: the zone of each subnet, and of each launch template that names its subnet.
    - `blocks`: the reservations that are capacity blocks.
    """

    def __init__(self, cluster: str, clock: FakeClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.capacity: dict[str, int] = {}
        self.refusals: dict[str, str] = {}
        self.machines: dict[str, Machine] = {}
        self.requests: list[LaunchRequest] = []
        self.sent: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.lag = 0.0
        self.stale = 0.0
        self.tag_lag = 0.0
        self.next_errors: list[CloudError | None] = []
        self.next_list_errors: list[CloudError] = []
        self.next_give_errors: list[CloudError] = []
        self.end_error: CloudError | None = None
        self.lose_answers = 0
        self.lose_gifts = 0
        self.late_effects = 0
        self.delay = 20.0
        self.partials = 0
        self.unreadable = False
        self.health_unreadable = False
        self.troubles: dict[str, InstanceHealth] = {}
        self.network_places: dict[str, tuple[str, ...]] = {}
        self.consoles: dict[str, str] = {}
        self.launch_templates: set[str] = set()
        self.subnets: set[str] = set()
        self.places: dict[str, str] = {}
        self.blocks: set[str] = set()
        self.throttle = RequestRates(clock.monotonic)
        self._tokens: dict[str, Answer] = {}
        self._late: dict[str, Late] = {}
        self._made = 0

    # The port

    def launch(self, request: LaunchRequest, before_call: Callable[[], None]) -> LaunchResult:
        before_call()
        action = "CreateFleet" if request.others else "RunInstances"
        self._called("launch", action, len(request.nodes))
        sent = (ec2_messages.create_fleet if request.others else ec2_messages.run_instances)(
            request
        )
        self.sent.append(sent)
        if self.next_errors and (error := self.next_errors.pop(0)):
            raise error
        call = self._read(sent)
        if self.late_effects and call.token not in self._tokens:
            self.late_effects -= 1
            self._late[call.token] = Late(self.clock.monotonic() + self.delay, request, call)
            raise error_codes.error("Unreachable", "the answer was lost, and the call not yet done")
        self._late.pop(call.token, None)
        answer = self._once(request, call, self.clock.monotonic())
        if self.lose_answers:
            self.lose_answers -= 1
            raise error_codes.error("Unreachable", "the answer was lost")
        return self._launched(request, answer)

    def _launched(self, request: LaunchRequest, answer: Answer) -> LaunchResult:
        """Return the result that the adapter makes of EC2's answer."""
        if answer.call.fleet:
            for node, instance_id in zip(request.nodes, answer.ids, strict=False):
                machine = self.machines[instance_id]
                machine.tags["toolkit:order"] = "written"
                if "toolkit:node" not in machine.tags:
                    machine.instance = replace(machine.instance, node=node)
        found = [self._described(self.machines[item]) for item in answer.ids]
        if found and not answer.call.fleet and all(m.state is TERMINATED for m in found):
            raise error_codes.error(
                "IdempotentInstanceTerminated", "Please use a different client token."
            )
        return LaunchResult(tuple(found), ec2_messages.refusals(request, answer.errors))

    def retag_nodes(
        self, node_by_id: Mapping[str, NodeName], may_retag: Callable[[str], bool]
    ) -> bool:
        for instance_id, node in node_by_id.items():
            if not may_retag(instance_id):
                return False
            self._called("give", "CreateTags", 1)
            if self.next_give_errors:
                raise self.next_give_errors.pop(0)
            if instance_id not in self.machines:
                raise error_codes.error("InvalidInstanceID.NotFound", "no such machine")
            machine = self.machines[instance_id]
            machine.tags["toolkit:node"] = node
            machine.was, machine.given_at = machine.instance.node, self.clock.monotonic()
            machine.instance = replace(machine.instance, node=node)
            if self.lose_gifts:
                self.lose_gifts -= 1
                raise error_codes.error("Unreachable", "the answer was lost")
        return True

    def instances(self) -> tuple[Instance, ...]:
        self._called("instances", "DescribeInstances", 0)
        if self.unreadable:
            raise error_codes.error("Unreachable", "no answer")
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
            raise error_codes.error("Unreachable", "no answer")
        if self.end_error is not None:
            raise self.end_error
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

    def health(self) -> tuple[InstanceHealth, ...]:
        self.calls.append("health")
        if self.unreadable or self.health_unreadable:
            raise error_codes.error("Unreachable", "no answer")
        return tuple(self.troubles.values())

    def network_nodes(self, types: Sequence[str]) -> dict[str, tuple[str, ...]]:
        self.calls.append("network_nodes")
        if self.unreadable:
            raise error_codes.error("Unreachable", "no answer")
        return {
            machine.instance.id: self.network_places.get(machine.instance.id, NETWORK_NODES)
            for machine in self.machines.values()
            if machine.instance.type in types and not machine.instance.state.terminated
        }

    def console(self, instance_id: str) -> str:
        self.calls.append("console")
        if self.unreadable:
            raise error_codes.error("Unreachable", "no answer")
        if instance_id not in self.machines:
            raise error_codes.error("InvalidInstanceID.NotFound", "no such machine")
        return self.consoles.get(instance_id, "")

    # The test's side

    def impair(self, instance_id: str) -> None:
        """Fail the instance's status checks from now on."""
        known = self.troubles.get(instance_id, InstanceHealth(instance_id))
        self.troubles[instance_id] = replace(known, impaired_since=self.clock.now())

    def schedule(self, instance_id: str, code: str, not_before: float) -> None:
        known = self.troubles.get(instance_id, InstanceHealth(instance_id))
        event = ScheduledEvent(code, not_before)
        self.troubles[instance_id] = replace(known, events=(*known.events, event))

    def give_notice(self, instance_id: str) -> None:
        """Announce that EC2 takes the instance back in two minutes."""
        known = self.troubles.get(instance_id, InstanceHealth(instance_id))
        self.troubles[instance_id] = replace(known, notice=True)

    def live(self) -> list[Instance]:
        """Return the instances that run, also those that lists do not show."""
        self._settle()
        return [item for item in map(self._described, self.machines.values()) if item.state.live]

    def seen_live(self) -> dict[str, str | None]:
        """Return the node of each instance that a list shows as live.

        An instance that is too new for lists is among them.
        """
        now = self.clock.monotonic()
        return {
            item.instance.id: item.instance.node
            for item in self.machines.values()
            if item.visible_at > now or self._described(item, stale=self.stale).state.live
        }

    def add(self, instance: Instance, *, cluster: str | None = None) -> None:
        """Add an instance that was launched before the test began."""
        self.machines[instance.id] = Machine(instance, cluster or self.cluster, 0.0)

    def end(self, instance_id: str, code: str, *, after: float = 0.0) -> None:
        machine = self.machines[instance_id]
        due = self.clock.monotonic() + after
        if machine.over_at is None or due < machine.over_at:
            machine.over_at = due
            machine.instance = replace(machine.instance, ended_at=due, end_code=code)

    def interrupt(self, instance_id: str, *, notice: float = 0.0) -> None:
        """Take a spot instance back, `notice` seconds from now."""
        self.end(instance_id, SPOT_TERMINATION, after=notice)

    def calm(self) -> None:
        """End all trouble: later calls work, and earlier effects stay."""
        self.capacity, self.refusals, self.next_errors = {}, {}, []
        self.next_list_errors, self.end_error = [], None
        self.lose_answers = self.lose_gifts = self.late_effects = self.partials = 0
        self.lag = self.stale = self.tag_lag = 0.0
        self.unreadable = self.throttle.enabled = False

    def _called(self, name: str, action: str, resources: int) -> None:
        self.calls.append(name)
        self._settle()
        if not self.throttle.allows(action, resources):
            raise error_codes.error("RequestLimitExceeded", "Request limit exceeded.")

    def _read(self, sent: Mapping[str, object]) -> Call:
        """Read a call, or refuse it as EC2 does."""
        if "LaunchTemplateConfigs" in sent:
            call = launch_call.create_fleet(sent)
        else:
            call = launch_call.run_instances(sent, self.blocks)
        if self.launch_templates and call.template not in self.launch_templates:
            raise error_codes.error(
                "InvalidLaunchTemplateName.NotFoundException", "no such template"
            )
        if self.subnets and any(item.subnet not in self.subnets for item in call.choices):
            raise error_codes.error("InvalidSubnetID.NotFound", "no such subnet")
        if call.token in self._tokens and self._tokens[call.token].call != call:
            raise error_codes.error("IdempotentParameterMismatch", "not as in the previous request")
        return call

    def _settle(self) -> None:
        """Carry out the late launches that are due."""
        now = self.clock.monotonic()
        for token, late in list(self._late.items()):
            if late.due <= now:
                del self._late[token]
                try:
                    self._once(late.request, late.call, late.due)
                except Exception:  # noqa: BLE001, S112 - no caller is left to get the error
                    continue

    def _once(self, request: LaunchRequest, call: Call, at: float) -> Answer:
        if call.token not in self._tokens:
            self.requests.append(request)
            self._tokens[call.token] = self._start(call, at)
        return self._tokens[call.token]

    def _start(self, call: Call, at: float) -> Answer:
        """Fill a launch from its choices, in their order.

        If fewer instances than the least can start, none starts.
        """
        wanted = most = call.most
        if self.partials:
            self.partials -= 1
            wanted = most = most // 2
        shares: list[tuple[Choice, int]] = []
        answer = Answer(call)
        codes_of_refusals = []
        for choice in call.choices:
            key = self._key(call, choice)
            left = self.capacity.get(key, wanted)
            share = 0 if key in self.refusals else min(left, wanted)
            if share < wanted or most < call.most:
                code = self.refusals.get(key, "InsufficientInstanceCapacity")
                codes_of_refusals.append((choice, code, f"no {key} left"))
            shares.append((choice, share))
            wanted -= share
        if call.fleet:
            answer.errors = [_fleet_error(*item) for item in codes_of_refusals]
        # RunInstances does not report instances beyond the minimum that it could not start.
        if most - wanted < call.least:
            if not call.fleet:
                raise error_codes.error(*codes_of_refusals[0][1:])
            return answer
        for choice, share in shares:
            key = self._key(call, choice)
            if key in self.capacity:
                self.capacity[key] -= share
            # A fleet makes several launches, and each numbers its instances from 0.
            first = 0 if call.fleet else len(answer.ids)
            answer.ids += [self._one(call, choice, first + n, at) for n in range(share)]
        return answer

    def _zone(self, call: Call, choice: Choice) -> str:
        return self.places[choice.subnet or call.template]

    def _key(self, call: Call, choice: Choice) -> str:
        return f"{call.reservation or call.market}:{choice.type}:{self._zone(call, choice)}"

    def _one(self, call: Call, choice: Choice, index: int, at: float) -> str:
        self._made += 1
        number = self._made
        instance_id = f"i-{number:017x}"
        tag = dict(call.tags)
        instance = Instance(
            id=instance_id,
            state=InstanceState.PENDING,
            role=tag.get("toolkit:role", ""),
            node=_node(tag, index),
            pool=tag.get("toolkit:pool", ""),
            partition=tag.get("toolkit:partition", ""),
            attempt=tag.get("toolkit:attempt", ""),
            type=choice.type,
            zone=self._zone(call, choice),
            lifecycle=Lifecycle(call.market),
            address=f"10.42.{number // 250}.{number % 250 + 1}",
            price=_price(tag, choice.type),
            launched_at=at,
        )
        cluster = tag.get("toolkit:cluster", "")
        self.machines[instance.id] = Machine(instance, cluster, at + self.lag, tags=tag)
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
        elif instance.ended_at is None and not instance.end_code:
            return instance
        return replace(instance, state=state, ended_at=None, end_code="")


def _fleet_error(choice: Choice, code: str, message: str) -> dict[str, object]:
    override = {"InstanceType": choice.type}
    return {
        "LaunchTemplateAndOverrides": {"Overrides": override},
        "ErrorCode": code,
        "ErrorMessage": message,
    }


def _node(tag: Mapping[str, str], index: int) -> NodeName | None:
    """Return the node of the instance with these tags."""
    if tag.get("toolkit:order") == "pending":
        return None
    launched = launch_call.hostlist(launch_call.whole(tag, "toolkit:nodes", ","))
    return hostlist.parse(launched[index]) if index < len(launched) else None


def _price(tag: Mapping[str, str], type_: str) -> str:
    prices = launch_call.whole(tag, "toolkit:prices", "")
    by_type = dict(item.split("=") for item in prices.split(",") if item)
    return by_type.get(type_, tag.get("toolkit:price", ""))


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
            raise error_codes.error("Unreachable", "no answer")
        self.puts += 1
        self.objects[key] = dict(value)

    def get(self, key: str) -> dict[str, object] | None:
        return self.objects.get(key)
