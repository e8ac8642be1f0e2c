"""Find instances that failed to become nodes, and instances that came up. Pure.

The console is evidence for people and decides nothing: on EC2 it lags by minutes and may stay
empty. The decision rests on EC2's state, its status checks, and slurmd's registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import (
    ROLE_COMPUTE,
    SPOT_INTERRUPTION_CODES,
    USER_SHUTDOWN_CODE,
    BootFailure,
    BootResults,
    EndCause,
    InstanceState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.snapshot import Snapshot


PENDING_SHARE: Final = 0.5
"""Share of ResumeTimeout. An instance that is `pending` for longer would not have time to boot."""

REGISTER_MARGIN: Final = 60.0
"""Seconds after launch and ResumeTimeout. slurmctld should have acted by then; if it forgot,
reconcile acts."""


def failure_reason(
    node: Node, instance: Instance, health: InstanceHealth | None, snapshot: Snapshot
) -> str:
    """Return why this live instance failed to become the node.

    Empty while it may still become it.
    """
    if node.invalid and not node.busy:
        return "invalid-registration"
    if not node.powering_up or node.down:
        return ""
    age, patience = snapshot.age(instance), snapshot.config.resume_timeout
    if instance.state is InstanceState.PENDING and age > patience * PENDING_SHARE:
        return "never-booted"
    if health is not None and health.impaired(snapshot.now):
        return "impaired"
    return "never-registered" if age > patience + REGISTER_MARGIN else ""


def observe(snapshot: Snapshot) -> BootResults:
    """Return the instances that came up, and the failed ones."""
    registered_ids = {
        node.instance_id for node in snapshot.nodes.values() if node.up and not node.invalid
    }
    # A node that has been up for long says nothing about today's launches. An instance launched
    # within ResumeTimeout of a failed one came up beside it: the failure is a weak zone's.
    deadlines: dict[str, float] = {}
    for instance in snapshot.instances:
        if instance.state.live and instance.id in registered_ids:
            deadline = instance.launched_at + snapshot.config.resume_timeout
            deadlines[instance.pool] = max(deadline, deadlines.get(instance.pool, deadline))
    return BootResults(tuple(_boot_failures(snapshot)), deadlines)


def _boot_failures(snapshot: Snapshot) -> Iterator[BootFailure]:
    for instance in snapshot.instances:
        if instance.role != ROLE_COMPUTE or instance.node not in snapshot.config.pool_by_node:
            continue
        cause = snapshot.journal.termination_causes.get(instance.id)
        node = snapshot.nodes.get(instance.node or "")
        if cause is EndCause.BOOT_FAILED:
            why = "it never registered"
        elif cause is None and node is not None and _terminated_while_booting(node, instance):
            why = f"it was terminated while it booted ({instance.end_code or 'no reason given'})"
        else:
            continue
        launched, name = instance.launched_at, str(instance.node)
        yield BootFailure(instance.id, name, instance.pool, why, snapshot.moment, launched)


def _terminated_while_booting(node: Node, instance: Instance) -> bool:
    was_booting = (
        instance.state.not_working and node.powering_up and node.instance_id == instance.id
    )
    return was_booting and instance.end_code not in {*SPOT_INTERRUPTION_CODES, USER_SHUTDOWN_CODE}
