"""Past jobs of racks, from one call of sacct on the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.governor.words import NOTE_PREFIX
from slurmplugins.slurm import queue_parser, sacct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.model.queued_job import Request
    from toolkit.head_runner import Runner

FIELDS: Final = (
    *("JobIDRaw", "JobID", "Account", "QOS", "Partition", "Submit", "Eligible", "Start", "End"),
    *("TimelimitRaw", "NNodes", "ReqTRES", "AllocTRES", "AdminComment", "Comment", "State"),
)
TIMEOUT: Final = 300.0
_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class PastJob:
    """An attempt that was submitted to racks. Times are epoch seconds."""

    id: int
    account: str
    qos: str
    eligible_at: float
    started_at: float
    ended_at: float
    request: Request
    time_limit: float | None = None
    comment: str = ""
    in_cloud: bool = False
    """It burst, by a rule of that time."""

    @property
    def seconds(self) -> float:
        """Return how long it ran."""
        return max(0.0, self.ended_at - self.started_at)

    @property
    def waited(self) -> float:
        return max(0.0, self.started_at - self.eligible_at)


@dataclass(frozen=True, slots=True)
class PastQueue:
    """The jobs of one partition of racks, and the attempts that are left out."""

    jobs: tuple[PastJob, ...]
    never_started: int = 0


def read_rows(head: Runner, since: int, until: int) -> list[dict[str, str]]:
    """Return sacct's rows of attempts that overlap the window.

    Raises HeadCommandFailed or SlurmRefused.
    """
    token = sacct.new_token()
    output = head.run(sacct.argv(FIELDS, since, until, token), timeout=TIMEOUT)
    return sacct.rows(output, FIELDS, token)


def past_queue(rows: Iterable[Mapping[str, str]], rack: str, cloud: str, until: float) -> PastQueue:
    """Return the attempts of one partition of racks, sorted by eligibility.

    A job that burst ran in the cloud's partition, and has the governor's note.
    """
    jobs, never_started = [], 0
    for row in rows:
        in_cloud = row["Partition"] == cloud and NOTE_PREFIX in row["AdminComment"]
        if row["Partition"] != rack and not in_cloud:
            continue
        job = _job(row, in_cloud, until)
        if job is None:
            never_started += 1
        else:
            jobs.append(job)
    jobs.sort(key=lambda job: (job.eligible_at, job.id))
    return PastQueue(tuple(jobs), never_started)


def _job(row: Mapping[str, str], in_cloud: bool, until: float) -> PastJob | None:
    """Return the attempt; None if it never started."""
    started_at, submitted_at = _moment(row["Start"]), _moment(row["Submit"])
    if started_at is None or submitted_at is None:
        return None
    minutes = row["TimelimitRaw"]
    # What it held counts: an exclusive job has more than it requested.
    tres = row["AllocTRES"] or row["ReqTRES"]
    nodes = int(row["NNodes"]) if row["NNodes"].isdecimal() else 1
    return PastJob(
        id=int(row["JobIDRaw"]) if row["JobIDRaw"].isdecimal() else 0,
        account=row["Account"],
        qos=row["QOS"],
        eligible_at=max(submitted_at, _moment(row["Eligible"]) or 0.0),
        started_at=started_at,
        ended_at=max(started_at, min(until, _moment(row["End"]) or until)),
        request=queue_parser.request_of_tres(tres, max(nodes, 1)),
        time_limit=int(minutes) * _MINUTE if minutes.isdecimal() else None,
        comment=row["Comment"],
        in_cloud=in_cloud,
    )


def _moment(text: str) -> float | None:
    return float(text) if text.isdecimal() and int(text) else None
