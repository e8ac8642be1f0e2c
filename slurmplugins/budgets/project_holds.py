"""Plan which waiting jobs of projects are held. Pure.

Slurm has no limit for wckeys. So a pass holds a job whose project's budget can't pay its whole time
limit, and releases it once it can. A job in an account of the same budget needs no hold: Slurm's
limit of the account keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets.words import Cause, note
from slurmplugins.config.budgets import Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slurmplugins.budgets.figures import Figures
    from slurmplugins.config.budgets import BudgetsConfig
    from slurmplugins.model.account_limits import BilledJob

HELD_BY_AN_ADMIN: Final = "JobHeldAdmin"
"""Slurm's reason of a job that an admin holds, and of one that we hold."""
HELD: Final = (HELD_BY_AN_ADMIN, "JobHeldUser")
NOT_YET: Final = ("BeginTime", "Dependency", "DependencyNeverSatisfied")
"""Reasons of jobs that can't start now. They may be too dear, and take nothing from the others."""


@dataclass(frozen=True, slots=True)
class ProjectHolds:
    """The jobs of projects that a pass changes."""

    holds: tuple[int, ...]
    releases: tuple[int, ...]
    notes: Mapping[int, str]
    """By job that waits for a budget: the line for its AdminComment."""
    ours: frozenset[int]
    """Jobs that are held by us, once this pass is done."""


def project_holds(
    config: BudgetsConfig,
    jobs: Iterable[BilledJob],
    by_project: Mapping[str, Figures],
    held: frozenset[int],
) -> ProjectHolds:
    """Return the jobs to hold and to release.

    `held` are held by an earlier pass. A release without an answer is made again: its job
    stays ours until Slurm shows it free.
    """
    pending = {job.id: job for job in jobs if job.pending}
    notes = dict(_notes(config, pending, by_project, held))
    ours = {number for number in held & pending.keys() if _is_held(pending[number])}
    return ProjectHolds(
        holds=tuple(number for number in notes if not _is_held(pending[number])),
        releases=tuple(sorted(ours - notes.keys())),
        notes=notes,
        ours=frozenset(ours | notes.keys()),
    )


def requeued(
    config: BudgetsConfig, jobs: Iterable[BilledJob], by_project: Mapping[str, Figures]
) -> Iterator[int]:
    """Yield the running jobs of projects whose budget says `requeue`."""
    for job in jobs:
        item = _figures_of(job, config, by_project)
        if item is not None and item.requeues and job.requeue_saves:
            yield job.id


def _notes(
    config: BudgetsConfig,
    pending: Mapping[int, BilledJob],
    by_project: Mapping[str, Figures],
    held: frozenset[int],
) -> Iterator[tuple[int, str]]:
    """Yield the jobs that must wait, each with its line.

    Earlier jobs are paid first.
    """
    left = {item.budget.name: item.free for item in by_project.values()}
    for number, job in sorted(pending.items()):
        item = _figures_of(job, config, by_project)
        if item is None or (job.reason in HELD and number not in held):
            continue  # held by a person
        name = item.budget.name
        free = left[name]
        cause = _cause(job, item, free, config)
        if item.stale and cause is not None and not item.holds and number not in held:
            continue  # stale figures close nothing
        if cause is not None:
            yield number, note(item, cause)
        elif free is not None and job.reason not in NOT_YET:
            left[name] = free - (job.usd_until_limit or Decimal(0))


def _cause(
    job: BilledJob, item: Figures, free: Decimal | None, config: BudgetsConfig
) -> Cause | None:
    """Return why the job must wait, if it must."""
    if item.holds:
        return Cause.TOO_LITTLE
    if Action.SPOT_ONLY in item.actions and set(job.partitions) & set(config.on_demand):
        return Cause.SPOT_ONLY
    if free is None:
        return None
    if job.usd_until_limit is None:
        return Cause.NO_TIME_LIMIT
    return Cause.TOO_LITTLE if job.usd_until_limit > max(free, Decimal(0)) else None


def _figures_of(
    job: BilledJob, config: BudgetsConfig, by_project: Mapping[str, Figures]
) -> Figures | None:
    item = by_project.get(config.project_of(job.account, job.wckey))
    return None if item is None or job.account in config.accounts_of(item.budget) else item


def _is_held(job: BilledJob) -> bool:
    return job.reason == HELD_BY_AN_ADMIN
