"""Decide reconcile's actions, from the state of Slurm and EC2. Pure: the whole policy is here.

The caller lists EC2 before it asks Slurm, so Slurm's answer is the newer of the two.

The rules never touch these nodes and instances:

- Nodes that burst.json does not name.
- Nodes that an admin has drained or downed. Their reason is not ours.
- Nodes that a live run of resume is working on.
- Instances without our tag or role.

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
"""Reason of a node with a notice that the head saw first. The node agent's own reason differs, and
replaces it as soon as the agent has acted."""

ASKED: Final = f"{REASON_PREFIX} spot interruption, jobs asked from the head"

WAKE_EVERY: Final = 300.0
"""Seconds between two tries to get a static node its instance."""


def plan(world: Snapshot) -> Plan:
    """Return the actions that make Slurm and EC2 agree.

    Planning again on their result gives no actions.
    """
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
    """Return the empty plan if Slurm or EC2 can't be believed."""
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
    """Plan for a pass that can't read the journal.

    Only jobs whose instance is seen to have ended are requeued: no run of resume works on such a
    node. The actions undo no launch and terminate no instance.
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
    """Return the remembered time, but never one in the future.

    A damaged state file may hold such a time: the wait then begins anew.
    """
    return now if remembered is None else min(remembered, now)


def _off(world: Snapshot, case: NodeState, asked: Asked | None) -> Iterator[Action]:
    """Clear up a node that Slurm has powered down.

    It should have no instance, and be usable again.
    """
    if asked is not None:
        yield from _lost_sight(world, case, asked)
        return
    failed = RESUME_TIMEOUT in case.node.reason
    cause = _cause(case.node)
    for machine in case.live:
        if case.node.powering_down or failed or orphans.old(world, machine):
            yield Terminate(machine, cause, "Slurm does not want the node up")
    for machine in case.unclear:  # SuspendProgram would do it, but Slurm runs it once
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
    """Requeue a forgotten node's jobs only if its slurmd stays lost."""
    if world.moment - asked.first >= world.config.resume_timeout:
        if not case.kept_off:
            yield MarkDown(case.name, f"{REASON_PREFIX} never-registered")
    else:
        yield from _register(world, case, asked)


def _register(world: Snapshot, case: NodeState, asked: Asked | None) -> Iterator[Action]:
    """Have slurmd repeat the registration that slurmctld has forgotten."""
    running = any(item.state is InstanceState.RUNNING for item in case.live)
    if running and asked is not None and asked.last == world.moment:
        yield Register(case.name, "its instance runs, and slurmctld waits for it")


def _wake(world: Snapshot, case: NodeState, woken: dict[NodeName, float]) -> Iterator[Action]:
    """Power up a static node without an instance.

    Static nodes have one although no job wants it.
    """
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
    """Handle a node that Slurm wants up, or believes to be up."""
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
    """Handle a node whose instance is there but has a problem."""
    node = case.node
    machine = min(case.live, key=lambda item: item.id != node.instance_id)
    health = world.health.get(machine.id)
    failure = boot_failures.problem(node, machine, health, world)
    # slurmctld itself drains a node that registers wrong: that reason is no person's.
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
            # The node's agent has had a pass's time to drain it and to ask its jobs.
            yield RequestStop(case.name, ASKED)
        elif not (node.drain or node.down or node.power_down_asked):
            ahead = _trouble_ahead(world, health, busy=node.busy)
            if ahead:
                yield Drain(case.name, ahead)


def _given_up(case: NodeState, slug: str) -> Iterator[Action]:
    """Requeue the node's jobs at once, and power it down."""
    reason = f"{REASON_PREFIX} {slug}"
    if not (case.node.down and case.node.ours):
        yield MarkDown(case.name, reason)
    if not case.node.power_down_asked:
        yield PowerDown(case.name, reason)


def _trouble_ahead(world: Snapshot, health: InstanceHealth, *, busy: bool) -> str:
    """Return the reason to drain a working node; empty if none."""
    if health.notice:
        return NOTICE
    if health.impaired(world.now):
        return f"{REASON_PREFIX} impaired"
    event = health.event(world.now, busy=busy)
    return f"{REASON_PREFIX} scheduled {event.code}" if event is not None else ""


def _lost(world: Snapshot, case: NodeState, unbacked_since: float | None) -> str:
    """Return the reason to set a node DOWN for a lost instance.

    Empty while the instance is there or may be. EC2's lists leave instances out, and a slurmd that
    answers runs on one.
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
    """Return whether the instance is unlisted for longer than lists lag.

    False if EC2 tells what happened to it.
    """
    return case.evidence is None and world.moment - since >= world.config.unbacked_grace


def _duplicates(case: NodeState) -> Iterator[Action]:
    """Terminate all but one of several live instances.

    The one that Slurm talks to stays.
    """
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
    """Terminate instances that Slurm powered down and won't admit.

    Slurm admits no instance that booted before it asked. If a job waits for the node and it has no
    other instance, the node is given back first. The instance then ends with a powered-down node.
    """
    for machine in case.left:
        if case.live or not case.node.busy:
            yield Terminate(machine, EndCause.SUSPEND, "Slurm has powered its node down since")


def _stopped(world: Snapshot, case: NodeState) -> Iterator[Action]:
    """Terminate stopped instances.

    They cost their disks and never come back as the node.
    """
    for machine in case.present:
        stopped = machine.state in {InstanceState.STOPPED, InstanceState.STOPPING}
        if stopped and machine.id not in world.claims.ended:
            yield Terminate(machine, EndCause.UNKNOWN, "it stopped")


def _cause(node: Node) -> EndCause:
    if RESUME_TIMEOUT in node.reason and node.down:
        return EndCause.BOOT_FAILED
    return EndCause.SUSPEND if node.powering_down else EndCause.ORPHAN
