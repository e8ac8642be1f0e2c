"""What reconcile should do, from both worlds as they are. Pure: the whole policy is here.

The caller lists the cloud before it asks Slurm, so what Slurm says is the newer of the two.
Never touched: nodes that burst.json does not name, nodes an admin has drained or downed (their
reason is not ours), nodes a live run of resume is working on, machines without our tag or role.
The table, in words and with its reasons, is in docs/adr/0011-converging.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.model import instance
from slurmplugins.model.actions import (
    Drain,
    MarkDown,
    PowerDown,
    PowerUp,
    Register,
    RequestStop,
    ReturnToService,
    Terminate,
)
from slurmplugins.model.instance import EndCause, InstanceState
from slurmplugins.model.node import REASON_PREFIX
from slurmplugins.reconciler import (
    boot_failures,
    forgotten_nodes,
    node_state,
    orphans,
    plausibility,
)
from slurmplugins.reconciler.node_state import NOT_RESPONDING, RESUME_TIMEOUT
from slurmplugins.reconciler.snapshot import Plan, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import InstanceHealth
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.forgotten_nodes import Asked
    from slurmplugins.reconciler.node_state import NodeState


SPOT_TAKEN: Final = instance.SPOT_TAKEN

NOTICE: Final = f"{REASON_PREFIX} spot interruption, seen from the head"
"""Not the node agent's words, which take their place as soon as it has acted."""

ASKED: Final = f"{REASON_PREFIX} spot interruption, jobs asked from the head"

WAKE_EVERY: Final = 300.0
"""Between two tries to get a static node its machine."""


def plan(world: Snapshot) -> Plan:
    """The actions that bring the worlds together; repeating it on their result gives none."""
    held = _held(world)
    if held is not None:
        return held
    if world.blind:
        return _blind(world)
    doubted = world.doubted_since if plausibility.cloud(world) else None
    actions: list[Action] = list(orphans.ends(world))
    remarks = list(orphans.remarks(world))
    unbacked: dict[NodeName, float] = {}
    woken: dict[NodeName, float] = {}
    asked: dict[NodeName, Asked] = {}
    for case in node_state.of(world):
        if forgotten_nodes.forgotten(world, case):
            asked[case.name] = forgotten_nodes.update(world, case.name)
        if case.node.off:
            actions += _off(world, case, asked.get(case.name))
            actions += _wake(world, case, woken)
            continue
        if case.unbacked:
            unbacked[case.name] = _since(world.unbacked_since.get(case.name), world.moment)
            if case.node.up and _missing(world, case, unbacked[case.name]):
                remarks.append(f"{case.name} answers, and EC2 lists no machine for it: left alone")
        actions += _on(world, case, unbacked.get(case.name), asked.get(case.name))
    return Plan(
        tuple(actions),
        unbacked,
        remarks=tuple(remarks),
        doubted_since=doubted,
        woken=woken,
        asked=asked,
    )


def _held(world: Snapshot) -> Plan | None:
    """The empty plan for when one of the worlds can't be believed."""
    note, believed, since = plausibility.slurm(world), True, world.doubted_since
    if not note and (doubted := plausibility.cloud(world)):
        since = _since(since, world.moment)
        if world.moment - since < plausibility.BELIEVED_AFTER:
            note, believed = doubted, False
    if not note:
        return None
    return Plan(
        unbacked_since=world.unbacked_since,
        note=note,
        cloud_believed=believed,
        doubted_since=since,
        woken=world.woken,
        asked=world.asked,
    )


def _blind(world: Snapshot) -> Plan:
    """Only jobs whose machine is seen to have ended are sent back: no run is at such a node. What
    Slurm is told of it undoes no launch, and ends no machine.
    """
    actions = [
        item
        for case in node_state.of(world)
        if case.evidence is not None and not case.node.off
        for item in _on(world, case, None, None)
        if isinstance(item, MarkDown | PowerDown)
    ]
    return Plan(
        tuple(actions),
        world.unbacked_since,
        note="the journal can't be read: nothing is ended",
        cloud_believed=False,
        doubted_since=world.doubted_since,
        woken=world.woken,
        asked=world.asked,
    )


def _since(remembered: float | None, now: float) -> float:
    """Never ahead of now, as a damaged memory would have it: a wait begins anew then."""
    return now if remembered is None else min(remembered, now)


def _off(world: Snapshot, case: NodeState, asked: Asked | None) -> Iterator[Action]:
    """Slurm has let go of the node: it should have no machine, and be usable again."""
    if asked is not None:
        yield from _lost_sight(world, case, asked)
        return
    failed = RESUME_TIMEOUT in case.node.reason
    cause = _cause(case.node)
    for machine in case.live:
        if case.node.powering_down or failed or orphans.old(world, machine):
            yield Terminate(machine, cause, "Slurm does not want the node up")
    for machine in case.unclear:  # as SuspendProgram would, which Slurm runs once
        if case.node.powering_down:
            yield Terminate(machine, cause, "Slurm does not want the node up")
    yield from _stopped(world, case)
    if case.present or case.expected:
        return
    if case.node.drain and not case.node.ours:
        return
    if case.node.down and not (case.node.ours or failed):
        return
    if case.node.powering_down or case.node.down or case.node.drain:
        yield ReturnToService(case.name, "its machine is gone")


def _lost_sight(world: Snapshot, case: NodeState, asked: Asked) -> Iterator[Action]:
    """Take the node's jobs back only when its slurmd can't be found again."""
    if world.moment - asked.first >= world.config.resume_timeout:
        if not case.kept_off:
            yield MarkDown(case.name, f"{REASON_PREFIX} never-registered")
    else:
        yield from _register(world, case, asked)


def _register(world: Snapshot, case: NodeState, asked: Asked | None) -> Iterator[Action]:
    """Have slurmd say again what slurmctld has forgotten."""
    running = any(item.state is InstanceState.RUNNING for item in case.live)
    if running and asked is not None and asked.last == world.moment:
        yield Register(case.name, "its instance runs, and slurmctld waits for it")


def _wake(world: Snapshot, case: NodeState, woken: dict[NodeName, float]) -> Iterator[Action]:
    """Static nodes have a machine although no job wants one."""
    if case.name not in world.config.static:
        return
    last = world.woken.get(case.name)
    if last is not None and 0 <= world.moment - last < WAKE_EVERY:
        woken[case.name] = last
        return
    free = case.node.powered_down and not (case.node.drain or case.node.down or case.present)
    if free and not case.node.powering_down and not case.node.waking:
        woken[case.name] = world.moment
        yield PowerUp(case.name, "a static node")


def _on(
    world: Snapshot, case: NodeState, unbacked_since: float | None, asked: Asked | None
) -> Iterator[Action]:
    """Slurm wants the node up, or thinks it is."""
    yield from _stopped(world, case)
    yield from _duplicates(case)
    yield from _left(case)
    reason = _lost(world, case, unbacked_since)
    if reason and not (case.kept_off and not case.downed_by_slurm):
        if not case.node.down:
            yield MarkDown(case.name, reason)
        if not case.node.power_down_asked:
            yield PowerDown(case.name, reason)
        return
    sick = tuple(_sick(world, case)) if case.live else ()
    yield from sick or _register(world, case, asked)
    if not sick and case.node.ours and not case.node.power_down_asked:
        if case.node.down:
            yield PowerDown(case.name, "given back, not yet powered down")
        elif case.node.drain and not case.node.powering_up:
            # Slurm waits for the node's jobs before it powers the node down.
            yield PowerDown(case.name, "drained by us")


def _sick(world: Snapshot, case: NodeState) -> Iterator[Action]:
    """The node has its machine, and something is wrong with it."""
    node = case.node
    machine = min(case.live, key=lambda item: item.id != node.instance_id)
    health = world.health.get(machine.id)
    failure = boot_failures.problem(node, machine, health, world)
    # slurmctld itself drains what registers wrong, so that reason is no person's.
    if failure and (node.invalid or not case.kept_off):
        yield Terminate(machine, EndCause.BOOT_FAILED, failure)
        yield from _given_up(case, failure)
    elif node.down and node.reason.startswith(NOT_RESPONDING):
        if not node.power_down_asked:
            yield PowerDown(case.name, "fell silent; its jobs have left")
    elif health is not None and not (failure or case.kept_off or node.powering_up):
        if health.impaired(world.now) and node.silent:
            yield from _given_up(case, "impaired")
        elif health.notice and node.busy and node.reason == NOTICE:
            # A pass ago the node's agent could have drained it, and asked its jobs.
            yield RequestStop(case.name, ASKED)
        elif not (node.drain or node.down or node.power_down_asked):
            ahead = _trouble_ahead(world, health, busy=node.busy)
            if ahead:
                yield Drain(case.name, ahead)


def _given_up(case: NodeState, slug: str) -> Iterator[Action]:
    """Its jobs go back to the queue at once, and it is powered down."""
    reason = f"{REASON_PREFIX} {slug}"
    if not (case.node.down and case.node.ours):
        yield MarkDown(case.name, reason)
    if not case.node.power_down_asked:
        yield PowerDown(case.name, reason)


def _trouble_ahead(world: Snapshot, health: InstanceHealth, *, busy: bool) -> str:
    """The reason to give why nothing new should start on a node that works."""
    if health.notice:
        return NOTICE
    if health.impaired(world.now):
        return f"{REASON_PREFIX} impaired"
    event = health.event(world.now, busy=busy)
    return f"{REASON_PREFIX} scheduled {event.code}" if event is not None else ""


def _lost(world: Snapshot, case: NodeState, unbacked_since: float | None) -> str:
    """The reason to give when the node's machine is gone; empty while it is, or may be, there:
    EC2's lists leave machines out, and a slurmd that answers runs on one.
    """
    if not case.unbacked:
        return ""
    if case.evidence is not None:
        code = case.evidence.end_code
        slug = "interrupted" if code in SPOT_TAKEN else "machine-ended"
        return f"{REASON_PREFIX} {slug}" + (f" ({code})" if code else "")
    if unbacked_since is None or case.node.up or not _missing(world, case, unbacked_since):
        return ""
    return f"{REASON_PREFIX} no-machine"


def _missing(world: Snapshot, case: NodeState, since: float) -> bool:
    """Unlisted for longer than a list lags, and nothing says what became of it."""
    return case.evidence is None and world.moment - since >= world.config.unbacked_grace


def _duplicates(case: NodeState) -> Iterator[Action]:
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


def _left(case: NodeState) -> Iterator[Action]:
    """Slurm lets none in that booted before it asked. Where a job waits for the node and has no
    other machine, the node is given back first: it ends as one that is powered down.
    """
    for machine in case.left:
        if case.live or not case.node.busy:
            yield Terminate(machine, EndCause.SUSPEND, "Slurm has powered its node down since")


def _stopped(world: Snapshot, case: NodeState) -> Iterator[Action]:
    """A stopped machine costs its disk and never comes back as the node."""
    for machine in case.present:
        stopped = machine.state in {InstanceState.STOPPED, InstanceState.STOPPING}
        if stopped and machine.id not in world.claims.ended:
            yield Terminate(machine, EndCause.UNKNOWN, "it stopped")


def _cause(node: Node) -> EndCause:
    if RESUME_TIMEOUT in node.reason and node.down:
        return EndCause.BOOT_FAILED
    return EndCause.SUSPEND if node.powering_down else EndCause.ORPHAN
