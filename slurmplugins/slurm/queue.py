"""The queue as the burst governor reads and changes it: scontrol, argv only, JSON in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.slurm import queue_parser
from slurmplugins.slurm.json_parser import failure, records
from slurmplugins.slurm.scontrol import READ_TIMEOUT, WRITE_TIMEOUT, read_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.model.queued_job import QueuedJob, QueuePartition
    from slurmplugins.system.command import Runner


class Queue:
    """The queue of slurmctld. Each method raises SlurmUnreachable or SlurmRefused."""

    def __init__(self, runner: Runner, bin_dir: str) -> None:
        self._runner = runner
        self._scontrol = f"{bin_dir}/scontrol"

    def jobs(self) -> tuple[QueuedJob, ...]:
        """Return all jobs that slurmctld knows, but unreadable ones."""
        items = read_jobs(self._runner, self._scontrol, timeout=READ_TIMEOUT)
        jobs = (queue_parser.queued_job(item) for item in items)
        return tuple(job for job in jobs if job is not None)

    def partitions(self, usd_per_hour: Callable[[str, str], str]) -> Mapping[str, QueuePartition]:
        """Return all partitions, with their nodes and the prices of these.

        `usd_per_hour` returns the price of a node in a partition.
        """
        return queue_parser.partitions(self._show("partitions"), self._show("nodes"), usd_per_hour)

    def set_partitions(self, label: str, partitions: Sequence[str]) -> None:
        """Replace a waiting job's list of partitions.

        slurmctld tries partitions of one PriorityTier in the order of the list.
        """
        names = ",".join(partitions)
        argv = [self._scontrol, "update", f"jobid={label}", f"partition={names}"]
        result = self._runner.run(argv, timeout=WRITE_TIMEOUT)
        if result.returncode:
            raise failure(argv, result)

    def _show(self, what: str) -> list[object]:
        argv = [self._scontrol, "show", what, "--json"]
        return records(argv, self._runner.run(argv, timeout=READ_TIMEOUT), what)
