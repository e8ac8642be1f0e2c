"""The cost of jobs that burst, so far and at worst. Pure: no input or output.

A month is a calendar month in UTC. An attempt that runs counts with its whole time limit; one that
ended counts with its time, at the dearest price of its nodes. An attempt whose end nobody saw keeps
its worst cost. So the sums are never below what EC2 bills for the jobs' nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.config.governor import GovernorConfig
    from slurmplugins.model.queued_job import QueuedJob

REFUSAL_SECONDS: Final = 900.0
"""Seconds that a job stays after Slurm refused its change, or its instances did not come up."""


@dataclass(frozen=True, slots=True)
class Burst:
    """A job, or an array, that the governor let burst. It lasts as long as slurmctld knows it."""

    account: str
    rack: str
    cloud: str
    usd_per_hour: Decimal
    """Of one task, at the dearest price."""
    restarts: int = 0
    seen: bool = False
    """A later pass saw it with the cloud's partition."""


@dataclass(frozen=True, slots=True)
class CloudAttempt:
    """A start of a job, or of an array's task, in the cloud."""

    account: str
    month: str
    """The month of its start, such as 2026-11."""
    began_at: float
    usd: Decimal
    """Its cost; while it runs, at worst."""
    usd_per_hour: Decimal
    ended: bool = False
    ran: bool = False
    """It was seen with all of its nodes up."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A job that stays for some minutes, since a change or a launch failed."""

    until: float
    message: str = ""
    """Slurm's words; empty: its instances did not come up."""


@dataclass(frozen=True, slots=True)
class Spending:
    """All that the governor remembers from pass to pass."""

    bursts: Mapping[int, Burst] = field(default_factory=dict)
    """By the number of the job or array."""
    attempts: Mapping[str, CloudAttempt] = field(default_factory=dict)
    """By job number and restarts, `4711.0`; another key for one that a restore brought back."""
    refusals: Mapping[int, Refusal] = field(default_factory=dict)
    expected: Mapping[int, float] = field(default_factory=dict)
    """Backfill's last expected start: while it plans, jobs have none."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """The last note in a job's comment."""


def month_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


def spent(spending: Spending, account: str, now: float) -> Decimal:
    """Return the cost of the account's attempts in this month.

    Attempts that run count with their worst cost, whenever they began.
    """
    month = month_of(now)
    return sum(
        (
            item.usd
            for item in spending.attempts.values()
            if item.account == account and (item.month == month or not item.ended)
        ),
        Decimal(0),
    )


def with_restored(own: Spending, saved: Spending) -> Spending:
    """Return a head's memory with the attempts of a backup.

    The jobs of the backup are gone. Of an attempt that both know, the end that the head saw counts,
    and otherwise the dearer amount. A young cluster may have given a number of the backup's to
    another job: then both attempts count.
    """
    attempts = dict(own.attempts)
    for key, item in saved.attempts.items():
        known = attempts.get(key)
        if known is None:
            attempts[key] = item
        elif known.began_at != item.began_at:
            attempts[f"{key}@{item.began_at:.0f}"] = replace(item, ended=True)
        elif not known.ended and item.usd > known.usd:
            attempts[key] = item
    return replace(own, attempts=attempts)


def observe(
    spending: Spending, jobs: Iterable[QueuedJob], config: GovernorConfig, now: float
) -> Spending:
    """Return what is known after one more look at the queue.

    It may be repeated.
    """
    queue = tuple(jobs)
    attempts = {**spending.attempts, **_running_attempts(spending, queue, config, now)}
    attempts = _with_ends(attempts, queue, config, now)
    refusals = {number: item for number, item in spending.refusals.items() if item.until > now}
    families = {job.family for job in queue}
    bursts = {}
    for number, burst in spending.bursts.items():
        if number not in families:
            continue  # slurmctld forgot it
        own = [job for job in queue if job.family == number]
        if _failed_in_cloud(number, burst, own, attempts):
            refusals[number] = Refusal(now + REFUSAL_SECONDS)
        bursts[number] = replace(
            burst,
            seen=burst.seen or any(burst.cloud in job.partitions for job in own),
            restarts=max([burst.restarts, *(job.restarts for job in own)]),
        )
    month = month_of(now)
    return Spending(
        bursts=bursts,
        attempts={
            key: item for key, item in attempts.items() if not item.ended or item.month == month
        },
        refusals=refusals,
        expected=_expected(spending, queue, now),
        notes={n: text for n, text in spending.notes.items() if n in {job.id for job in queue}},
    )


def _running_attempts(
    spending: Spending, queue: Iterable[QueuedJob], config: GovernorConfig, now: float
) -> dict[str, CloudAttempt]:
    """Return the attempts of bursts that run in the cloud's partition."""
    running = {}
    for job in queue:
        burst = spending.bursts.get(job.family)
        if burst is None or not job.running or job.partitions[:1] != (burst.cloud,):
            continue
        known = spending.attempts.get(_key(job))
        began_at = known.began_at if known else min(now, job.start_at or now)
        rate = burst.usd_per_hour
        seconds = config.boot + (job.time_limit or 0.0) + config.tail
        running[_key(job)] = CloudAttempt(
            account=burst.account,
            month=month_of(began_at),
            began_at=began_at,
            usd=_usd(rate, max(seconds, now - began_at + config.tail)),
            usd_per_hour=rate,
            ran=(known is not None and known.ran) or not job.booting,
        )
    return running


def _with_ends(
    attempts: Mapping[str, CloudAttempt],
    queue: Iterable[QueuedJob],
    config: GovernorConfig,
    now: float,
) -> dict[str, CloudAttempt]:
    """Return the attempts, with the ends that the queue shows."""
    records = {job.id: job for job in queue}
    result = {}
    for key, item in attempts.items():
        if item.ended:
            result[key] = item
            continue
        number, _, restarts = key.partition(".")
        job = records.get(int(number))
        still_runs = job is not None and job.running and job.restarts == int(restarts)
        if not still_runs:
            usd = item.usd  # nobody saw its end
            if job is not None:
                ended_at = job.end_at if job.restarts == int(restarts) and job.end_at else now
                seconds = max(0.0, min(now, ended_at) - item.began_at) + config.tail
                usd = min(usd, _usd(item.usd_per_hour, seconds))
            item = replace(item, usd=usd, ended=True)  # noqa: PLW2901 - the same, ended
        result[key] = item
    return result


def _failed_in_cloud(
    number: int,
    burst: Burst,
    own: Iterable[QueuedJob],
    attempts: Mapping[str, CloudAttempt],
) -> bool:
    """Return whether the job was requeued before it ever ran there."""
    for job in own:
        if job.pending and job.array == 0 and job.restarts > burst.restarts:
            last = attempts.get(f"{number}.{job.restarts - 1}")
            return last is None or not last.ran
    return False


def _expected(spending: Spending, queue: Iterable[QueuedJob], now: float) -> dict[int, float]:
    expected = {}
    for job in queue:
        if job.pending:
            start = job.start_at or spending.expected.get(job.id, 0.0)
            if start > now:
                expected[job.id] = start
    return expected


def _key(job: QueuedJob) -> str:
    return f"{job.id}.{job.restarts}"


def _usd(usd_per_hour: Decimal, seconds: float) -> Decimal:
    return (usd_per_hour * Decimal(seconds) / 3600).quantize(Decimal("0.000001"))
