"""Queries to Slurm about nodes, with retries: nodes it knows, nodes that wait for an instance."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins.errors import SlurmError, SlurmRefused
from slurmplugins.slurm.port import NODES_IN_CALL, Slurm
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.retry import retry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence, Set as AbstractSet

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.node import Node
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


_Answer = TypeVar("_Answer")

READ_TRIES: Final = 3
READ_PAUSE: Final = 1.0
"""Seconds between two tries."""


def known_nodes(slurm: Slurm, nodes: Sequence[NodeName]) -> Mapping[NodeName, Node]:
    """Return the nodes that Slurm knows among these names, by name.

    It reads Slurm once for many names, and again only if one name is no node.
    Raises SlurmUnreachable or SlurmRefused.
    """
    try:
        records = slurm.nodes(nodes if len(nodes) <= NODES_IN_CALL else None)
    except SlurmRefused:  # one of the names is no node
        records = slurm.nodes()
    by_name = {node.name: node for node in records}
    return {name: by_name[name] for name in nodes if name in by_name}


def awaited_nodes(
    slurm: Slurm, nodes: Sequence[NodeName], terminated_nodes: Collection[str] = ()
) -> frozenset[NodeName]:
    """Return nodes that Slurm waits for, and nodes whose instance was terminated.

    `terminated_nodes` names the nodes whose instance we terminated. Only the returned nodes can be
    set down and powered down. Any other node that is up is in use. On a node that is powered down
    already, a POWER_DOWN flag would stick. Raises SlurmUnreachable or SlurmRefused.
    """
    return frozenset(
        name
        for name, node in known_nodes(slurm, nodes).items()
        if node.powering_up
        or (name in terminated_nodes and node.readable and not node.powering_off)
    )


def read_awaited(
    slurm: Slurm,
    clock: Clock,
    log: Log,
    nodes: Sequence[NodeName],
    terminated_nodes: AbstractSet[NodeName] = frozenset(),
) -> frozenset[NodeName] | None:
    """Return the same as `awaited_nodes`, with retries.

    Returns None if Slurm did not answer READ_TRIES times.
    """
    return with_retries(clock, log, lambda: awaited_nodes(slurm, nodes, terminated_nodes))


def with_retries(
    clock: Clock, log: Log, query: Callable[[], _Answer], tries: int = READ_TRIES
) -> _Answer | None:
    """Return Slurm's answer, or None if each of `tries` tries failed.

    It waits READ_PAUSE between two tries.
    """

    def log_error(error: SlurmError) -> None:
        log.warning(LogEvent.NODE_QUERY_FAILED, message=error.message)

    try:
        return retry(query, SlurmError, repeat(READ_PAUSE, tries - 1), clock, failed=log_error)
    except SlurmError:
        return None
