"""The port that typed reads go through, and the choice of what stands behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from toolkit.slurm_nodes import CliReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.head_runner import Runner
    from toolkit.slurm_api.model import JobInfo, NodeInfo, PartitionInfo


class Reader(Protocol):
    """Reads of the live state; each call asks Slurm once."""

    def nodes(self) -> Sequence[NodeInfo]:
        """Every node of slurm.conf."""
        ...

    def jobs(self) -> Sequence[JobInfo]:
        """Every job that slurmctld still remembers."""
        ...

    def partitions(self) -> Sequence[PartitionInfo]:
        """Every partition."""
        ...


def reader(runner: Runner) -> Reader:
    """The reader for a head node that is reached by running commands on it.

    pyslurm needs libslurm and the cluster's key on the machine that calls it, so it can only ever
    serve a process on the head itself; commands from elsewhere read the CLI's JSON.
    """
    return CliReader(runner)
