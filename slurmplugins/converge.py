"""What reconcile should do, from both worlds as they are. Pure: the whole policy is here.

The caller lists the cloud before it asks Slurm, so what Slurm says is the newer of the two.
Never touched: nodes that burst.json does not name, nodes an admin has drained or downed (their
reason is not ours), nodes a live run of resume is working on, machines without our tag or role.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurmplugins import tags
from slurmplugins.actions import MarkDown, PowerDown, Reopen, Terminate
from slurmplugins.model import REASON_PREFIX, EndCause, InstanceState
from slurmplugins.planner import machines_by_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slurmplugins.actions import Action
    from slurmplugins.config import BurstConfig
    from slurmplugins.model import Claims, Instance, Node
    from slurmplugins.names import NodeName

RESUME_TIMEOUT: Final = "ResumeTimeout reached"
"""Slurm's own reason for a node that did not come up in time."""

NOT_RESPONDING: Final = "Not responding"
"""Slurm's own reason for a node that fell silent."""

SPOT_TAKEN: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
"""StateReason codes of a machine that EC2 took back."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything the decision may depend on. `unbacked_since`: since when a node that is up was
    seen without a machine, remembered from one pass to the next.
    """

    config: BurstConfig
    instances: Sequence[Instance]
    nodes: Mapping[str, Node]
    claims: Claims
    now: float
    unbacked_since: Mapping[NodeName, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """`note` says why nothing is done where that needs saying."""

    actions: tuple[Action, ...] = ()
    unbacked_since: Mapping[NodeName, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Case:
    """One node and its machines. `expected`: one was launched that the cloud does not list yet."""

    name: NodeName
    node: Node
    live: tuple[Instance, ...]
    present: tuple[Instance, ...]
    evidence: Instance | None
    expected: bool


def plan(world: World) -> Plan:
    """The actions that bring the worlds together; repeating it on their result gives none."""
    ours = world.config.pool_by_node
    known = [name for name in ours if name in world.nodes]
    if len(known) * 2 < len(ours):
        note = f"Slurm lists {len(known)} of {len(ours)} nodes: not believed"
        return Plan(unbacked_since=world.unbacked_since, note=note)
    actions: list[Action] = list(_condemned(world))
    actions += _strangers(world)
    unbacked: dict[NodeName, float] = {}
    machines = machines_by_node(world.instances)
    listed = {machine.id for machine in world.instances}
    expected = {m.node for m in world.claims.launched.values() if m.instance_id not in listed}
    for name in known:
        if name in world.claims.busy:
            continue
        case = _case(world, name, machines.get(name, ()), expected=name in expected)
        if case.node.off:
            actions += _off(world, case)
            continue
        if _unbacked(case):
            unbacked[name] = world.unbacked_since.get(name, world.now)
        actions += _on(world, case, unbacked.get(name))
    return Plan(tuple(actions), unbacked)


def _case(world: World, name: NodeName, machines: Sequence[Instance], *, expected: bool) -> _Case:
    node = world.nodes[name]
    live = tuple(m for m in machines if m.state.live and m.id not in world.claims.ended)
    present = tuple(m for m in machines if m.state is not InstanceState.TERMINATED)
    gone = [m for m in machines if not m.state.live and m.id == node.instance_id]
    return _Case(name, node, live, present, gone[0] if gone else None, expected)


def _condemned(world: World) -> Iterator[Action]:
    """Machines whose end was decided and did not come about."""
    for machine in world.instances:
        if _compute(machine) and not machine.state.over and machine.id in world.claims.ended:
            yield Terminate(machine, world.claims.ended[machine.id], "its end was decided before")


def _strangers(world: World) -> Iterator[Action]:
    """Machines with our tag whose node neither burst.json nor Slurm knows."""
    for machine in world.instances:
        if not _compute(machine) or machine.state.over or machine.id in world.claims.ended:
            continue
        name = machine.node
        if name is not None and (name in world.config.pool_by_node or name in world.nodes):
            continue
        if _old(world, machine):
            yield Terminate(machine, EndCause.ORPHAN, f"there is no node {name or 'for it'}")


def _off(world: World, case: _Case) -> Iterator[Action]:
    """Slurm has let go of the node: it should have no machine, and be usable again."""
    failed = RESUME_TIMEOUT in case.node.reason
    for machine in case.live:
        if case.node.powering_down or failed or _old(world, machine):
            cause = _cause(case.node)
            yield Terminate(machine, cause, "Slurm does not want the node up")
    yield from _stopped(world, case)
    if case.present or case.expected:
        return
    if case.node.drain and not case.node.ours:
        return
    if case.node.down and not (case.node.ours or failed):
        return
    if case.node.powering_down or case.node.down:
        yield Reopen(case.name, "its machine is gone")


def _on(world: World, case: _Case, unbacked_since: float | None) -> Iterator[Action]:
    """Slurm wants the node up, or thinks it is."""
    yield from _stopped(world, case)
    yield from _duplicates(case)
    reason = _lost(world, case, unbacked_since)
    hands_off = (case.node.drain or case.node.down) and not case.node.ours
    if reason and not (hands_off and not _slurms_own(case.node)):
        if not case.node.down:
            yield MarkDown(case.name, reason)
        if not case.node.power_down_asked:
            yield PowerDown(case.name, reason)
        return
    if case.node.ours and not case.node.power_down_asked:
        if case.node.down:
            yield PowerDown(case.name, "given back, not yet powered down")
        elif case.node.drain and not case.node.powering_up:
            # Slurm waits for the node's jobs before it powers the node down.
            yield PowerDown(case.name, "drained by us")


def _lost(world: World, case: _Case, unbacked_since: float | None) -> str:
    """The reason to give when the node's machine is gone; empty while it is, or may be, there."""
    if not _unbacked(case):
        return ""
    if case.evidence is not None:
        code = case.evidence.end_code
        slug = "interrupted" if code in SPOT_TAKEN else "machine-ended"
        return f"{REASON_PREFIX} {slug}" + (f" ({code})" if code else "")
    if unbacked_since is not None and world.now - unbacked_since >= world.config.unbacked_grace:
        return f"{REASON_PREFIX} no-machine"
    return ""


def _unbacked(case: _Case) -> bool:
    return not case.live and not case.expected


def _duplicates(case: _Case) -> Iterator[Action]:
    """All but one of several live machines: the one Slurm talks to stays."""
    if len(case.live) < 2:  # noqa: PLR2004 - one machine is what a node has
        return
    node = case.node
    keep = min(
        case.live,
        key=lambda m: (m.id != node.instance_id, m.address != node.address, m.launched_at),
    )
    for machine in case.live:
        if machine is not keep:
            yield Terminate(machine, EndCause.ORPHAN, f"{keep.id} is {case.name} already")


def _stopped(world: World, case: _Case) -> Iterator[Action]:
    """A stopped machine costs its disk and never comes back as the node."""
    for machine in case.present:
        stopped = machine.state in {InstanceState.STOPPED, InstanceState.STOPPING}
        if stopped and machine.id not in world.claims.ended:
            yield Terminate(machine, EndCause.UNKNOWN, "it stopped")


def _compute(machine: Instance) -> bool:
    return machine.role == tags.ROLE_COMPUTE


def _old(world: World, machine: Instance) -> bool:
    return world.now - machine.launched_at > world.config.orphan_grace


def _slurms_own(node: Node) -> bool:
    """Down by slurmctld itself, not by a person."""
    return node.down and node.reason.startswith((NOT_RESPONDING, RESUME_TIMEOUT))


def _cause(node: Node) -> EndCause:
    if RESUME_TIMEOUT in node.reason and node.down:
        return EndCause.RESUME_FAILED
    return EndCause.SUSPEND if node.powering_down else EndCause.ORPHAN
