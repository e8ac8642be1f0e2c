"""Writes the costs of jobs to their MLflow runs.

A job's cost is that of all its attempts, with the boot and idle time it caused. A report
of some hours has only a part of some jobs. Their runs are left as they are: a part would
overwrite the whole.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import usd
from toolkit.accounting.report import Key
from toolkit.runs import queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import Charge, InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.report import Report
    from toolkit.head_runner import Runner

_BATCH = 100
_COMPONENTS_OF_TAGS = {
    "cost_usd_lost_work": (Component.LOST,),
    "cost_usd_boot": (Component.BOOT, Component.WAIT),
    "cost_usd_idle": (Component.IDLE_GAP, Component.IDLE_TAIL, Component.IDLE),
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of recording."""

    runs: int  # MLflow runs that were tagged
    partial_jobs: int  # jobs with a part of their cost outside the report


def job_tags(report: Report) -> dict[str, dict[str, str]]:
    """Return the tags of each whole job, by job id.

    Only ids that are plain numbers are included.
    """
    tags = {}
    recorded_jobs = whole_jobs(report)
    for group in report.groups([Key.JOB], with_shares=False):
        (job,) = group.key_values
        if not job.isdigit() or job not in recorded_jobs or group.has_unknown():
            continue
        tags[job] = {"cost_usd": str(usd(group.total))} | {
            name: str(usd(group.sum_of(*components)))
            for name, components in _COMPONENTS_OF_TAGS.items()
        }
    return tags


def whole_jobs(report: Report) -> frozenset[str]:
    """Return the ids of jobs whose whole cost is here."""
    attempts_by_job: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in report.attempts.values():
        attempts_by_job[attempt.job_id].append(attempt)
    partial_jobs = {
        report.attempts[charge.attempt].job_id
        for cost in report.costs
        for charge in _partial_charges(report, cost)
        if charge.attempt is not None
    }
    return frozenset(
        job
        for job, attempts in attempts_by_job.items()
        if job not in partial_jobs and _has_all_attempts(report, attempts)
    )


def _partial_charges(report: Report, cost: InstanceCost) -> Iterator[Charge]:
    """Yield charges that the report's time may cut off.

    A rack's node has no life of its own: the attempts on it must be whole.
    """
    instance = report.instances[cost.instance_id]
    if instance.kind is Kind.INSTANCE and _is_whole(report, instance):
        return
    for charge in cost.charges:
        attempt = None if charge.attempt is None else report.attempts[charge.attempt]
        if instance.kind is Kind.INSTANCE or (attempt and _reaches_out(report, attempt)):
            yield charge


def _reaches_out(report: Report, attempt: Attempt) -> bool:
    """Return whether a part of an attempt lies outside the report's time."""
    start = report.made_at if attempt.started is None else attempt.started
    end = report.made_at if attempt.ended is None else attempt.ended
    return start < report.window.since or end > report.window.until


def _is_whole(report: Report, instance: Instance) -> bool:
    """Return whether the report's time covers the instance's life so far."""
    window = report.window
    end = report.made_at if instance.ended is None else instance.ended
    return window.since <= instance.launched and end <= max(window.until, instance.launched)


def _has_all_attempts(report: Report, attempts: Sequence[Attempt]) -> bool:
    """Return whether all attempts of the job began in the report's time.

    Without Slurm's count of restarts nobody knows of an earlier attempt. A report since
    the head node's launch has all of them.
    """
    if any(attempt.started and attempt.started < report.window.since for attempt in attempts):
        return False
    restarts = {attempt.restarts for attempt in attempts}
    if None not in restarts:
        return restarts == set(range(len(attempts)))
    return any(item.is_head and _is_whole(report, item) for item in report.instances.values())


def record(runner: Runner, report: Report) -> Recorded:
    """Tag the runs of jobs that are whole in the report.

    Jobs without a run are ignored. May be repeated.
    """
    tags = job_tags(report)
    jobs = {group.key_values[0] for group in report.groups([Key.JOB]) if group.has_jobs}
    jobs_with_number = {job for job in jobs if job.partition(" ")[0].isdigit()}
    runs = sum(queries.tag_runs(runner, batch) for batch in _batches(tags))
    return Recorded(runs, len(jobs_with_number - tags.keys()))


def _batches(tags: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, Mapping[str, str]]]:
    jobs = list(tags)
    for start in range(0, len(jobs), _BATCH):
        yield {job: tags[job] for job in jobs[start : start + _BATCH]}
