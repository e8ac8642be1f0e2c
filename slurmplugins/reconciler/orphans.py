"""Find instances with the cluster's tag that have no node, or should be terminated. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SHOWN
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import (
    ROLE_BUILDER,
    ROLE_COMPUTE,
    ROLE_HEAD,
    EndCause,
    InstanceState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.model.instance import Instance
    from slurmplugins.reconciler.snapshot import Snapshot

_ROLES: Final = frozenset({ROLE_COMPUTE, ROLE_HEAD, ROLE_BUILDER})


def ends(world: Snapshot) -> Iterator[Terminate]:
    """Yield a termination for each instance that has no place.

    - Its end was decided before, and did not come about.
    - Neither burst.json nor Slurm knows its node.
    - Its tags contradict burst.json, and Slurm does not use it.
    """
    for machine in world.instances:
        if machine.role != ROLE_COMPUTE or machine.state.over:
            continue
        if machine.id in world.claims.ended:
            yield Terminate(machine, world.claims.ended[machine.id], "its end was decided before")
        elif machine.node is None and machine.attempt in world.claims.asked:
            continue  # its fleet's run is about to name its instances
        elif (
            old(world, machine) and not _odd(world, machine) and (why := _why_none(world, machine))
        ):
            yield Terminate(machine, EndCause.ORPHAN, why)


def remarks(world: Snapshot) -> Iterator[str]:
    """Yield remarks for people about suspicious instances.

    No rule here is sure enough to terminate these.
    """
    live = (item.id for item in world.instances if item.state.live)
    odd = [item for item in live if item in world.claims.strange]
    if odd:
        more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
        yield (
            f"{', '.join(odd[:SHOWN])}{more}: named by a line of the journal that can't be "
            "understood: given to no job, ended only while their node is off"
        )
    for machine in world.instances:
        if machine.state is InstanceState.UNCLEAR:
            state = f"in a state unknown here, {machine.unclear!r}"
            yield f"{machine.id} is {machine.node or 'no node'}, {state}: left alone"
        elif not machine.state.live:
            continue
        elif machine.role not in _ROLES:
            yield f"{machine.id} has the cluster's tag and no known role: left alone"
        elif machine.node in world.config.pool_by_node and machine.node not in world.nodes:
            yield f"{machine.id} is {machine.node}, which Slurm does not have: left alone"
        elif _odd(world, machine):
            yield f"{machine.id} is {machine.node}, whose record in Slurm is odd: left alone"
        elif _wrong_pool(world, machine) and _in_use(world, machine):
            yield f"{machine.id} works as {machine.node}, though its tags say pool {machine.pool!r}"


def misfit(world: Snapshot, machine: Instance) -> bool:
    """Return whether tags contradict burst.json on an unused instance.

    Slurm does not use it, so it is not the node's instance.
    """
    return _wrong_pool(world, machine) and not _in_use(world, machine)


def old(world: Snapshot, machine: Instance) -> bool:
    """Return whether no run can be about to claim the instance."""
    return world.age(machine) > world.config.orphan_grace


def _odd(world: Snapshot, machine: Instance) -> bool:
    """Return whether an unreadable record may be this instance's node."""
    if machine.node is None:
        return False
    node = world.nodes.get(machine.node)
    return "" in world.nodes if node is None else not node.readable


def _why_none(world: Snapshot, machine: Instance) -> str:
    name = machine.node
    if name is None or not (name in world.config.pool_by_node or name in world.nodes):
        return f"there is no node {name or 'for it'}"
    if misfit(world, machine) and name not in world.claims.busy:
        return f"its tags say pool {machine.pool!r}, which {name} is not in"
    return ""


def _wrong_pool(world: Snapshot, machine: Instance) -> bool:
    if machine.node is None or machine.role != ROLE_COMPUTE:
        return False
    return machine.pool != world.config.pool_by_node.get(machine.node, machine.pool)


def _in_use(world: Snapshot, machine: Instance) -> bool:
    node = world.nodes.get(machine.node or "")
    return node is not None and not node.off and node.instance_id == machine.id
