"""Decide reconcile's actions, from the state of Slurm and EC2. Pure: all decisions are here.

The caller lists EC2 before it asks Slurm, so Slurm's answer is the newer of the two.

The rules never touch these nodes and instances:

- Nodes that burst.json does not name.
- Nodes that an admin has drained or downed. Their reason is not ours.
- Nodes that a running ResumeProgram has claimed.
- Instances without our tag or role.

The table, in words and with its reasons, is in docs/adr/0011-converging.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
from slurmplugins.model.instance import SPOT_INTERRUPTION_CODES, EndCause, InstanceState
from slurmplugins.model.node import INTERRUPTION_REASON, REASON_PREFIX
from slurmplugins.reconciler import boot_failures, node_state, orphans
from slurmplugins.reconciler.node_state import NOT_RESPONDING, RESUME_TIMEOUT
from slurmplugins.reconciler.snapshot import (
    BELIEVED_AFTER,
    Plan,
    Snapshot,
    cloud_doubt,
    slurm_doubt,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import InstanceHealth
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.node_state import NodeState
    from slurmplugins.reconciler.snapshot import RegistrationRequests


NOTICE_REASON: Final = f"{INTERRUPTION_REASON}, noticed by the head node"
"""Reason of a node with a notice that the head saw first. The node agent's own reason differs, and
replaces it as soon as the agent has acted."""

STOP_REASON: Final = f"{INTERRUPTION_REASON}, its jobs asked to stop by the head node"

IMPAIRED_REASON: Final = f"{REASON_PREFIX} impaired"

POWER_UP_INTERVAL: Final = 300.0
"""Seconds between two tries to get a static node its instance."""


def plan(snapshot: Snapshot) -> Plan:
    """Return the actions that make Slurm and EC2 agree.

    Planning again on their result gives no actions.
    """
    doubted_plan = _plan_if_doubted(snapshot)
    if doubted_plan is not None:
        return doubted_plan
    if snapshot.journal_unreadable:
        return _plan_without_journal(snapshot)
    doubted_since = snapshot.doubted_since if cloud_doubt(snapshot) else None
    actions: list[Action] = list(orphans.terminations(snapshot))
    warnings = list(orphans.warnings(snapshot))
    without_instance_since: dict[NodeName, float] = {}
    last_power_up: dict[NodeName, float] = {}
    registration_requests: dict[NodeName, RegistrationRequests] = {}
    for state in node_state.node_states(snapshot):
        name, requests, since = state.name, None, None
        if node_state.is_forgotten(snapshot, state):
            requests = registration_requests[name] = node_state.next_requests(snapshot, name)
        if state.node.powering_off:
            actions += _actions_if_off(snapshot, state, requests)
            actions += _actions_if_static(snapshot, state, last_power_up)
            continue
        if state.without_instance:
            since = _not_in_future(snapshot.without_instance_since.get(name), snapshot.moment)
            without_instance_since[name] = since
            if state.node.up and _instance_is_missing(snapshot, state, since):
                warnings.append(f"node {name} responds, but EC2 lists no instance for it")
        actions += _actions_if_on(snapshot, state, since, requests)
    return Plan(
        tuple(actions),
        without_instance_since,
        warnings=tuple(warnings),
        doubted_since=doubted_since,
        last_power_up=last_power_up,
        registration_requests=registration_requests,
    )


def _plan_if_doubted(snapshot: Snapshot) -> Plan | None:
    """Return an empty plan if Slurm's or EC2's list is untrusted."""
    blocked_by, doubted_since, cloud_believed = slurm_doubt(snapshot), snapshot.doubted_since, True
    if not blocked_by and (doubt := cloud_doubt(snapshot)):
        doubted_since = _not_in_future(doubted_since, snapshot.moment)
        if snapshot.moment - doubted_since < BELIEVED_AFTER:
            blocked_by, cloud_believed = doubt, False
    if not blocked_by:
        return None
    return Plan(
        without_instance_since=snapshot.without_instance_since,
        blocked_by=blocked_by,
        cloud_believed=cloud_believed,
        doubted_since=doubted_since,
        last_power_up=snapshot.last_power_up,
        registration_requests=snapshot.registration_requests,
    )


def _plan_without_journal(snapshot: Snapshot) -> Plan:
    """Plan for a pass that can't read the journal.

    Only jobs whose instance is listed as terminated are requeued: no ResumeProgram works on such a
    node. The actions undo no launch and terminate no instance.
    """
    actions = [
        item
        for state in node_state.node_states(snapshot)
        if state.terminated_instance is not None and not state.node.powering_off
        for item in _actions_if_on(snapshot, state, None, None)
        if isinstance(item, MarkDown | PowerDown)
    ]
    return Plan(
        tuple(actions),
        snapshot.without_instance_since,
        blocked_by="the journal can't be read: no instance is terminated",
        cloud_believed=False,
        doubted_since=snapshot.doubted_since,
        last_power_up=snapshot.last_power_up,
        registration_requests=snapshot.registration_requests,
    )


def _not_in_future(moment: float | None, now: float) -> float:
    """Return the remembered time, but never one in the future.

    A damaged state file may hold such a time: the wait then begins anew.
    """
    return now if moment is None else min(moment, now)


def _actions_if_off(
    snapshot: Snapshot, state: NodeState, requests: RegistrationRequests | None
) -> Iterator[Action]:
    """Clear up a node that Slurm has powered down.

    It should have no instance, and be usable again.
    """
    if requests is not None:
        yield from _actions_if_forgotten(snapshot, state, requests)
        return
    node = state.node
    boot_failed = RESUME_TIMEOUT in node.reason
    cause, why = _end_cause(node), "Slurm has powered the node down"
    for instance in state.live_instances:
        if node.powering_down or boot_failed or orphans.past_orphan_grace(snapshot, instance):
            yield Terminate(instance, cause, why)
    for instance in state.unclear_instances:  # SuspendProgram would do it, but Slurm runs it once
        if node.powering_down:
            yield Terminate(instance, cause, why)
    yield from _actions_if_stopped(snapshot, state)
    if state.remaining_instances or state.launch_expected:
        return
    if node.drain and not node.reason_is_ours:
        return
    if node.down and not (node.reason_is_ours or boot_failed):
        return
    if node.powering_down or node.down or node.drain:
        yield ReturnToService(state.name, "its instance is terminated")


def _actions_if_forgotten(
    snapshot: Snapshot, state: NodeState, requests: RegistrationRequests
) -> Iterator[Action]:
    """Requeue a forgotten node's jobs only if its slurmd stays lost."""
    if snapshot.moment - requests.first >= snapshot.config.resume_timeout:
        if not state.disabled_by_admin:
            yield MarkDown(state.name, f"{REASON_PREFIX} never-registered")
    else:
        yield from _actions_if_unregistered(snapshot, state, requests)


def _actions_if_unregistered(
    snapshot: Snapshot, state: NodeState, requests: RegistrationRequests | None
) -> Iterator[Action]:
    """Have slurmd repeat the registration that slurmctld has forgotten."""
    running = any(item.state is InstanceState.RUNNING for item in state.live_instances)
    if running and requests is not None and requests.last == snapshot.moment:
        yield Register(state.name, "its instance runs, and slurmctld waits for its registration")


def _actions_if_static(
    snapshot: Snapshot, state: NodeState, last_power_up: dict[NodeName, float]
) -> Iterator[Action]:
    """Power up a static node without an instance.

    Static nodes have one although no job wants it.
    """
    if state.name not in snapshot.config.static_nodes:
        return
    previous = snapshot.last_power_up.get(state.name)
    if previous is not None and 0 <= snapshot.moment - previous < POWER_UP_INTERVAL:
        last_power_up[state.name] = previous
        return
    node = state.node
    is_free = node.powered_down and not (node.drain or node.down or state.remaining_instances)
    if is_free and not node.powering_down and not node.power_up_pending:
        last_power_up[state.name] = snapshot.moment
        yield PowerUp(state.name, "a static node has no instance")


def _actions_if_on(
    snapshot: Snapshot,
    state: NodeState,
    since: float | None,
    requests: RegistrationRequests | None,
) -> Iterator[Action]:
    """Handle a node that Slurm wants up, or believes to be up.

    `since` is the time since when it is without an instance.
    """
    yield from _actions_if_stopped(snapshot, state)
    yield from _actions_if_duplicate(state)
    yield from _actions_if_refused(state)
    reason = _loss_reason(snapshot, state, since)
    if reason and not (state.disabled_by_admin and not state.downed_by_slurm):
        yield from _give_back(state, reason, keep_reason=True)
        return
    health_actions = tuple(_actions_if_unhealthy(snapshot, state)) if state.live_instances else ()
    yield from health_actions or _actions_if_unregistered(snapshot, state, requests)
    if not health_actions and state.node.reason_is_ours and not state.node.power_down_requested:
        if state.node.down:
            yield PowerDown(state.name, "given back, but not yet powered down")
        elif state.node.drain and not state.node.powering_up:
            # Slurm waits for the node's jobs before it powers the node down.
            yield PowerDown(state.name, "the toolkit drained it")


def _actions_if_unhealthy(snapshot: Snapshot, state: NodeState) -> Iterator[Action]:
    """Handle a node whose instance is there but has a problem."""
    node = state.node
    instance = min(state.live_instances, key=lambda item: item.id != node.instance_id)
    health = snapshot.health.get(instance.id)
    failure = boot_failures.failure_reason(node, instance, health, snapshot)
    # slurmctld itself drains a node that registers wrong: that reason is no person's.
    if failure and (node.invalid or not state.disabled_by_admin):
        yield Terminate(instance, EndCause.BOOT_FAILED, failure)
        yield from _give_back(state, f"{REASON_PREFIX} {failure}")
    elif node.down and node.reason.startswith(NOT_RESPONDING):
        if not node.power_down_requested:
            yield PowerDown(state.name, "it does not respond, and its jobs were requeued")
    elif health is not None and not (failure or state.disabled_by_admin or node.powering_up):
        if health.impaired(snapshot.now) and node.not_responding:
            yield from _give_back(state, IMPAIRED_REASON)
        elif health.notice and node.busy and node.reason == NOTICE_REASON:
            # The node's agent has had a pass's time to drain it and to ask its jobs.
            yield RequestStop(state.name, STOP_REASON)
        elif not (node.drain or node.down or node.power_down_requested):
            drain_reason = _drain_reason(snapshot, health, busy=node.busy)
            if drain_reason:
                yield Drain(state.name, drain_reason)


def _give_back(state: NodeState, reason: str, *, keep_reason: bool = False) -> Iterator[Action]:
    """Requeue the node's jobs at once, and power it down.

    With `keep_reason`, a node that slurmctld has set DOWN keeps slurmctld's reason.
    """
    if not (state.node.down and (keep_reason or state.node.reason_is_ours)):
        yield MarkDown(state.name, reason)
    if not state.node.power_down_requested:
        yield PowerDown(state.name, reason)


def _drain_reason(snapshot: Snapshot, health: InstanceHealth, *, busy: bool) -> str:
    """Return the reason to drain a working node; empty if none."""
    if health.notice:
        return NOTICE_REASON
    if health.impaired(snapshot.now):
        return IMPAIRED_REASON
    event = health.event(snapshot.now, busy=busy)
    return f"{REASON_PREFIX} scheduled {event.code}" if event is not None else ""


def _loss_reason(snapshot: Snapshot, state: NodeState, since: float | None) -> str:
    """Return the reason to set a node DOWN for a lost instance.

    `since` is the time since when it is without one. Empty while the instance is there or may be.
    EC2's lists leave instances out, and a slurmd that responds runs on one.
    """
    if not state.without_instance:
        return ""
    if state.terminated_instance is not None:
        code = state.terminated_instance.end_code
        reason_code = "interrupted" if code in SPOT_INTERRUPTION_CODES else "machine-ended"
        return f"{REASON_PREFIX} {reason_code}" + (f" ({code})" if code else "")
    if state.node.up or not _instance_is_missing(snapshot, state, since):
        return ""
    return f"{REASON_PREFIX} no-machine"


def _instance_is_missing(snapshot: Snapshot, state: NodeState, since: float | None) -> bool:
    """Return whether the instance is unlisted for longer than lists lag.

    False if EC2 lists it as terminated.
    """
    if since is None or state.terminated_instance is not None:
        return False
    return snapshot.moment - since >= snapshot.config.missing_instance_grace


def _actions_if_duplicate(state: NodeState) -> Iterator[Action]:
    """Terminate all but one of several live instances.

    The one that Slurm talks to stays.
    """
    if len(state.live_instances) < 2:  # noqa: PLR2004 - a node has one instance
        return
    node = state.node
    kept_instance = min(
        state.live_instances,
        key=lambda m: (m.id != node.instance_id, m.address != node.address, m.launched_at),
    )
    why = f"node {state.name} has instance {kept_instance.id}"
    for duplicate in state.live_instances:
        if duplicate is not kept_instance:
            yield Terminate(duplicate, EndCause.ORPHAN, why)


def _actions_if_refused(state: NodeState) -> Iterator[Action]:
    """Terminate instances that Slurm powered down and won't admit.

    Slurm admits no instance that booted before it asked. If a job waits for the node and it has no
    other instance, the node is given back first. The instance then ends with a powered-down node.
    """
    for instance in state.powered_down_instances:
        if state.live_instances or not state.node.busy:
            why = "Slurm powered its node down after the launch"
            yield Terminate(instance, EndCause.SUSPEND, why)


def _actions_if_stopped(snapshot: Snapshot, state: NodeState) -> Iterator[Action]:
    """Terminate stopped instances.

    They cost their disks and never come back as the node.
    """
    for instance in state.remaining_instances:
        if instance.state.stopped and instance.id not in snapshot.journal.termination_causes:
            yield Terminate(instance, EndCause.UNKNOWN, "the instance is stopped")


def _end_cause(node: Node) -> EndCause:
    if RESUME_TIMEOUT in node.reason and node.down:
        return EndCause.BOOT_FAILED
    return node.power_down_cause if node.powering_down else EndCause.ORPHAN
