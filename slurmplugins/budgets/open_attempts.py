"""The ends of attempts that have none in slurmdbd, by slurmctld's answer. Pure.

A killed slurmctld or a restored backup leaves runaway jobs: slurmdbd has them as running for ever.
So an attempt without an end runs only if slurmctld says so.

slurmctld forgets a job some minutes after its end, and slurmdbd may not have that end yet. Such a
job looks like a runaway one, and must not lose its money. `is_settled` tells the two apart: it is
asked after slurmctld's jobs, and before sacct. While rows are on their way, nothing is measured.
The next pass measures the same time again.

A runaway job's end is unknown, so it is in no sum here. What its instance costs is idle time of
the account that had it last. A rack's cost until the loss is in the report alone, and comes with
the closed days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmUnreachable
from slurmplugins.slurm.sacct import second

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurmplugins.model.account_limits import BilledJob


@dataclass(frozen=True, slots=True)
class KnownJobs:
    """The jobs of slurmctld, by their ids."""

    jobs: Mapping[int, BilledJob]
    at: float
    """A moment before they were read. A later job may be missing."""
    is_settled: Callable[[], bool]
    """Whether slurmdbd has each row that slurmctld had for it."""


def end_of(row: Mapping[str, str], begin: float, until: float, known: KnownJobs) -> float | None:
    """Return the end of an attempt that began.

    None: it is a runaway job's. One that runs ends at `until`. Raises SlurmUnreachable while
    slurmdbd may not have its end yet.
    """
    end = second(row["End"])
    if end is not None or begin >= int(known.at):
        return end or until
    number = second(row["JobIDRaw"])
    job = known.jobs.get(number) if number is not None else None
    submitted = second(row["Submit"])
    if job is not None and submitted is not None and submitted < job.submitted:
        return min(until, max(begin, job.submitted))  # its job was requeued, at the latest then
    if job is not None and not job.pending:
        return until if job.running else min(until, job.end or until)
    if not known.is_settled():
        raise SlurmUnreachable(
            f"slurmdbd has job {number} as running, slurmctld does not, and rows are on their way"
        )
    return None
