"""Which nodes slurmctld still waits for, asked with patience: else their jobs wait for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmError
from slurmplugins.slurm import awaited

if TYPE_CHECKING:
    from collections.abc import Sequence, Set as AbstractSet

    from slurmplugins.clock import Clock
    from slurmplugins.log import Log
    from slurmplugins.names import NodeName
    from slurmplugins.slurm import Slurm

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
    for again in range(READ_TRIES):
        if again:
            clock.sleep(READ_PAUSE)
        try:
            return awaited(slurm, nodes, ended)
        except SlurmError as error:
            log.warning("nodes unread", message=error.message)
    return None
