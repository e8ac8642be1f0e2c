"""Writes the costs of jobs to their MLflow runs.

A job's cost is that of all its attempts, with the boot and idle time it caused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.money import usd
from toolkit.accounting.report import Key
from toolkit.runs import queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.accounting.report import Report
    from toolkit.head_runner import Runner

_BATCH = 100
_COMPONENTS_OF_TAGS = {
    "cost_usd_lost_work": (Component.LOST,),
    "cost_usd_boot": (Component.BOOT,),
    "cost_usd_idle": (Component.IDLE_GAP, Component.IDLE_TAIL),
}


def job_tags(report: Report) -> dict[str, dict[str, str]]:
    """Return the tags of each job in the report, by job id.

    Only ids that are plain numbers are included.
    """
    tags = {}
    for group in report.groups([Key.JOB]):
        (job,) = group.key_values
        if not job.isdigit():
            continue
        tags[job] = {"cost_usd": str(usd(group.total))} | {
            name: str(usd(group.sum_of(*components)))
            for name, components in _COMPONENTS_OF_TAGS.items()
        }
    return tags


def record(runner: Runner, report: Report) -> int:
    """Set the tags; return how many runs were tagged.

    Jobs without a run are ignored. May be repeated.
    """
    return sum(queries.tag_runs(runner, batch) for batch in _batches(job_tags(report)))


def _batches(tags: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, Mapping[str, str]]]:
    jobs = list(tags)
    for start in range(0, len(jobs), _BATCH):
        yield {job: tags[job] for job in jobs[start : start + _BATCH]}
