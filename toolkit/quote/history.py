"""Waits, interruptions, boots, and earlier runs of the same name, from the records. Pure.

Where there is no record, a figure is None: nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import EndCause
from toolkit.accounting.instances import NEVER_UP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance

HOUR: Final = 3600
LONGEST_BOOT: Final = 3600
"""Seconds. A job that starts later on an instance did not wait for its boot."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of several records."""

    median: float
    high: float  # nine of ten are below
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure | None:
        """Return the figure of these values; None without any."""
        if not values:
            return None
        high = quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
        return cls(float(median(values)), float(high), len(values))


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Spot instances of the same types that EC2 took back."""

    count: int
    instance_hours: float

    @property
    def per_hour(self) -> float:
        """Return the interruptions of one instance in an hour."""
        return self.count / self.instance_hours


@dataclass(frozen=True, slots=True)
class History:
    """Figures from some days of records, about a job."""

    since: int
    until: int
    run_seconds: Figure | None = None  # of completed jobs of the same name and account
    wait_seconds: Figure | None = None  # from submission to start, in the same partitions
    boot_seconds: Figure | None = None  # paid ones, from launch to the first job's start
    tail_seconds: Figure | None = None  # from the last job's end to a power-down
    interruptions: Interruptions | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Names that are looked for in the records."""

    name: str
    account: str  # empty: any
    partitions: Collection[str]
    pools: Collection[str]
    spot_types: Collection[str]


def history(
    subject: Subject,
    attempts: Iterable[Attempt],
    instances: Iterable[Instance],
    window: tuple[int, int],
) -> History:
    """Return what records of a window tell."""
    since, until = window
    own_attempts = [item for item in attempts if since <= item.begun < until]
    own_instances = [
        item
        for item in instances
        if not item.is_head and item.pool in subject.pools and item.launched < until
    ]
    return History(
        since,
        until,
        run_seconds=Figure.of(_runs(subject, own_attempts)),
        wait_seconds=Figure.of(_waits(subject, own_attempts)),
        boot_seconds=Figure.of(_boots(own_attempts, own_instances)),
        tail_seconds=Figure.of(_tails(own_attempts, own_instances)),
        interruptions=_interruptions(subject, own_instances, window),
    )


def _runs(subject: Subject, attempts: Iterable[Attempt]) -> list[float]:
    """Return the seconds of jobs that completed, over all of their attempts."""
    seconds: dict[str, float] = {}
    completed = set()
    for item in attempts:
        if item.name != subject.name or (subject.account and item.account != subject.account):
            continue
        if item.started is None or item.ended is None:
            continue
        seconds[item.job_id] = seconds.get(item.job_id, 0.0) + item.ended - item.started
        if item.state == "COMPLETED":
            completed.add(item.job_id)
    return [seconds[job] for job in completed]


def _waits(subject: Subject, attempts: Iterable[Attempt]) -> list[float]:
    """Return the waits of first attempts, with the boot of their instances."""
    return [
        float(item.started - item.submitted)
        for item in attempts
        if item.partition in subject.partitions
        and not item.restarts
        and item.started is not None
        and item.submitted is not None
        and item.started >= item.submitted
        and item.certainly_ran
    ]


def _boots(attempts: Iterable[Attempt], instances: Iterable[Instance]) -> list[float]:
    """Return the paid seconds of each instance before its first job.

    A pass may see an instance minutes after its first job began: that boot cost nothing.
    """
    starts: dict[str, list[int]] = {}
    for attempt in attempts:
        if attempt.started is not None and attempt.certainly_ran:
            for node in attempt.nodes:
                starts.setdefault(node, []).append(attempt.started)
    boots = []
    for instance in instances:
        own = [at for at in starts.get(instance.node, ()) if _lived(instance, at)]
        first = min(own, default=None)
        if first is not None and first - instance.launched <= LONGEST_BOOT:
            boots.append(float(max(first - instance.billed_from, 0)))
    return boots


def _tails(attempts: Iterable[Attempt], instances: Iterable[Instance]) -> list[float]:
    """Return the idle seconds before each power-down."""
    ends: dict[str, list[int]] = {}
    for attempt in attempts:
        if attempt.ended is not None and attempt.certainly_ran:
            for node in attempt.nodes:
                ends.setdefault(node, []).append(attempt.ended)
    tails = []
    for instance in instances:
        own = [at for at in ends.get(instance.node, ()) if _lived(instance, at)]
        if own and instance.ended is not None and instance.end_cause == EndCause.SUSPEND:
            tails.append(float(instance.ended - max(own)))
    return tails


def _lived(instance: Instance, at: int) -> bool:
    return instance.launched <= at and (instance.ended is None or at < instance.ended)


def _interruptions(
    subject: Subject, instances: Iterable[Instance], window: tuple[int, int]
) -> Interruptions | None:
    since, until = window
    count, seconds = 0, 0
    for item in instances:
        if not item.spot or item.instance_type not in subject.spot_types:
            continue
        if item.end_cause in NEVER_UP:
            continue
        end = until if item.ended is None else min(item.ended, until)
        seconds += max(0, end - max(item.launched, since))
        if item.taken and since <= (item.ended or 0) < until:
            count += 1
    return Interruptions(count, seconds / HOUR) if seconds else None
