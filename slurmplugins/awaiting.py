"""Slurm asked with patience, and for the nodes that it waits for: else jobs wait for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins.errors import SlurmError
from slurmplugins.slurm import awaited

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set as AbstractSet

    from slurmplugins.clock import Clock
    from slurmplugins.log import Log
    from slurmplugins.names import NodeName
    from slurmplugins.slurm import Slurm

_Answer = TypeVar("_Answer")

READ_TRIES: Final = 3
READ_PAUSE: Final = 1.0


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
