"""Ask Slurm about nodes, with patience: which are known, which wait for an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins.errors import SlurmError, SlurmRefused
from slurmplugins.slurm.port import NODES_IN_CALL, Slurm

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence, Set as AbstractSet

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.node import Node
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


_Answer = TypeVar("_Answer")

READ_TRIES: Final = 3
READ_PAUSE: Final = 1.0


def known(slurm: Slurm, nodes: Sequence[NodeName]) -> Mapping[NodeName, Node]:
    """Those of the names that Slurm knows, as it has them now; one read, however many they are."""
    try:
        found = slurm.nodes(nodes if len(nodes) <= NODES_IN_CALL else None)
    except SlurmRefused:  # one of the names is no node
        found = slurm.nodes()
    by_name = {node.name: node for node in found}
    return {name: by_name[name] for name in nodes if name in by_name}


def awaited(
    slurm: Slurm, nodes: Sequence[NodeName], ended: Collection[str] = ()
) -> frozenset[NodeName]:
    """Those whose machine Slurm waits for, or has `ended`: the only ones that can be given back.

    Another that is up works for somebody. A POWER_DOWN on one that is off would stick to it.
    """
    return frozenset(
        name
        for name, node in known(slurm, nodes).items()
        if node.powering_up or (name in ended and node.readable and not node.off)
    )


def read(
    slurm: Slurm,
    clock: Clock,
    log: Log,
    nodes: Sequence[NodeName],
    ended: AbstractSet[NodeName] = frozenset(),
) -> frozenset[NodeName] | None:
    """Those whose machine Slurm waits for, or had and has no more as it `ended`; None when it can't
    be asked, again and again.
    """
    return patiently(clock, log, lambda: awaited(slurm, nodes, ended))


def patiently(
    clock: Clock, log: Log, ask: Callable[[], _Answer], tries: int = READ_TRIES
) -> _Answer | None:
    """What Slurm answers about nodes; None when it does not, as often as it is tried."""
    for again in range(tries):
        if again:
            clock.sleep(READ_PAUSE)
        try:
            return ask()
        except SlurmError as error:
            log.warning("nodes unread", message=error.message)
    return None
