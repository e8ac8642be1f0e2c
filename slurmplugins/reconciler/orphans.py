"""Find instances with the cluster's tag that have no node, or should be terminated. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import MOST_NAMED
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import (
    ROLE_BUILDER,
    ROLE_COMPUTE,
    ROLE_HEAD,
    ROLE_LOGIN,
    EndCause,
    InstanceState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.model.instance import Instance
    from slurmplugins.reconciler.snapshot import Snapshot

_ROLES: Final = frozenset({ROLE_COMPUTE, ROLE_HEAD, ROLE_LOGIN, ROLE_BUILDER})


def terminations(snapshot: Snapshot) -> Iterator[Terminate]:
    """Yield a termination for each instance that has no place.

    - Its termination was decided before, and it still lives.
    - Neither burst.json nor Slurm knows its node.
    - Its tags contradict burst.json, and Slurm does not use it.
    """
    causes, awaiting_reply = snapshot.journal.termination_causes, snapshot.journal.awaiting_reply
    for instance in snapshot.instances:
        if instance.role != ROLE_COMPUTE or instance.state.terminated:
            continue
        if instance.id in causes:
            yield Terminate(instance, causes[instance.id], "its termination was decided before")
        elif instance.node is None and instance.attempt in awaiting_reply:
            continue  # its fleet's ResumeProgram is about to name its instances
        elif past_orphan_grace(snapshot, instance) and not _node_is_unreadable(snapshot, instance):
            why = _orphan_reason(snapshot, instance)
            if why:
                yield Terminate(instance, EndCause.ORPHAN, why)


def warnings(snapshot: Snapshot) -> Iterator[str]:
    """Yield a warning for each suspicious instance.

    No rule here is sure enough to terminate these.
    """
    live_ids = (item.id for item in snapshot.instances if item.state.live)
    ids = [item for item in live_ids if item in snapshot.journal.unreadable_ids]
    if ids:
        more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
        yield (
            f"{', '.join(ids[:MOST_NAMED])}{more}: named by a journal line that can't be read: "
            "no job gets them, and they are terminated only while their node is powered down"
        )
    for instance in snapshot.instances:
        if instance.state is InstanceState.UNCLEAR:
            node = f"node {instance.node}" if instance.node else "no node"
            yield f"{instance.id} ({node}) is in the unknown state {instance.unclear!r}"
        elif instance.state.live and (text := _live_warning(snapshot, instance)):
            yield text


def _live_warning(snapshot: Snapshot, instance: Instance) -> str:
    if instance.role not in _ROLES:
        return f"{instance.id} has the cluster's tag and no known role"
    if instance.node in snapshot.config.pool_by_node and instance.node not in snapshot.nodes:
        return f"{instance.id} is node {instance.node}, which Slurm does not list"
    if _node_is_unreadable(snapshot, instance):
        return f"{instance.id} is node {instance.node}, whose record in Slurm can't be read"
    if _wrong_pool(snapshot, instance) and _in_use(snapshot, instance):
        tags = f"tags say pool {instance.pool!r}"
        return f"{instance.id} works as node {instance.node}, though its {tags}"
    return ""


def has_wrong_tags(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether tags contradict burst.json on an unused instance.

    Slurm does not use it, so it is not the node's instance.
    """
    return _wrong_pool(snapshot, instance) and not _in_use(snapshot, instance)


def past_orphan_grace(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether no ResumeProgram can be about to claim the instance."""
    return snapshot.age(instance) > snapshot.config.orphan_grace


def _node_is_unreadable(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether an unreadable record may be this instance's node."""
    if instance.node is None:
        return False
    node = snapshot.nodes.get(instance.node)
    return "" in snapshot.nodes if node is None else not node.readable


def _orphan_reason(snapshot: Snapshot, instance: Instance) -> str:
    name = instance.node
    if name is None or not (name in snapshot.config.pool_by_node or name in snapshot.nodes):
        return f"there is no node {name}" if name else "its tags name no node"
    if has_wrong_tags(snapshot, instance) and name not in snapshot.journal.claimed_nodes:
        return f"its tags say pool {instance.pool!r}, but node {name} is not in it"
    return ""


def _wrong_pool(snapshot: Snapshot, instance: Instance) -> bool:
    if instance.node is None or instance.role != ROLE_COMPUTE:
        return False
    return instance.pool != snapshot.config.pool_by_node.get(instance.node, instance.pool)


def _in_use(snapshot: Snapshot, instance: Instance) -> bool:
    node = snapshot.nodes.get(instance.node or "")
    return node is not None and not node.powering_off and node.instance_id == instance.id
