"""Find instances that failed to become nodes, and instances that came up. Pure.

The console is evidence for people and decides nothing: on EC2 it lags by minutes and may stay
empty. The decision rests on EC2's state, its status checks, and slurmd's registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import (
    BY_A_PERSON,
    ROLE_COMPUTE,
    SPOT_TAKEN,
    BootFailure,
    Boots,
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


def problem(node: Node, machine: Instance, health: InstanceHealth | None, world: Snapshot) -> str:
    """Return why this live instance failed to become the node.

    Empty while it may still become it.
    """
    if node.invalid and not node.busy:
        return "invalid-registration"
    if not node.powering_up or node.down:
        return ""
    age, patience = world.age(machine), world.config.resume_timeout
    if machine.state is InstanceState.PENDING and age > patience * PENDING_SHARE:
        return "never-booted"
    if health is not None and health.impaired(world.now):
        return "impaired"
    return "never-registered" if age > patience + REGISTER_MARGIN else ""


def observe(world: Snapshot) -> Boots:
    """Return the instances that came up, and the failed ones."""
    up = {node.instance_id for node in world.nodes.values() if node.up and not node.invalid}
    # A node that has been up for long says nothing about today's launches. An instance launched
    # within ResumeTimeout of a failed one came up beside it: the failure is a weak zone's.
    fine: dict[str, float] = {}
    for machine in world.instances:
        if machine.state.live and machine.id in up:
            until = machine.launched_at + world.config.resume_timeout
            fine[machine.pool] = max(until, fine.get(machine.pool, until))
    return Boots(tuple(_failed(world)), fine)


def _failed(world: Snapshot) -> Iterator[BootFailure]:
    for machine in world.instances:
        if machine.role != ROLE_COMPUTE or machine.node not in world.config.pool_by_node:
            continue
        cause = world.claims.ended.get(machine.id)
        node = world.nodes.get(machine.node or "")
        if cause is EndCause.BOOT_FAILED:
            why = "it did not come up"
        elif cause is None and node is not None and _died_booting(node, machine):
            why = f"it ended while it booted ({machine.end_code or 'no reason given'})"
        else:
            continue
        launched, name = machine.launched_at, str(machine.node)
        yield BootFailure(machine.id, name, machine.pool, why, world.moment, launched)


def _died_booting(node: Node, machine: Instance) -> bool:
    gone = machine.state.lost and node.powering_up and node.instance_id == machine.id
    return gone and machine.end_code not in {*SPOT_TAKEN, BY_A_PERSON}
