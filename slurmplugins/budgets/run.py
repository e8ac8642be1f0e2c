"""Run one pass of account budgets: measure, decide, change Slurm, remember."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets import files
from slurmplugins.budgets.figures import STALE
from slurmplugins.budgets.memory import memory_meanwhile
from slurmplugins.budgets.meter import rates
from slurmplugins.budgets.plan import BudgetPlan, BudgetSnapshot, plan
from slurmplugins.budgets.printing import printable_figures
from slurmplugins.budgets.spending import allocations
from slurmplugins.errors import SlurmError, SlurmRefused, SlurmUnreachable
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from decimal import Decimal

    from slurmplugins.budgets.limit_changes import LimitChange
    from slurmplugins.budgets.memory import Memory
    from slurmplugins.budgets.plan import JobNotice, Reached
    from slurmplugins.budgets.spending import HeadSpending
    from slurmplugins.config.budgets import BudgetsConfig
    from slurmplugins.model.account_limits import BilledJob
    from slurmplugins.slurm.account_limits import SlurmLimits
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

PROGRAM_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Change:
    """A change in Slurm, with its audit line."""

    make: Callable[[], None]
    limit: LimitChange | None = None
    """The limit that is changed, if it is one."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The edges of a pass."""

    config: BudgetsConfig
    slurm_limits: SlurmLimits
    slurm: Slurm
    spending: HeadSpending
    runner: Runner
    log: Log
    stale_ledger: Callable[[float], str]
    """Why instances of the ledger may have ended unnoticed; empty if they have not."""

    @property
    def folder(self) -> Path:
        return Path(self.config.folder)


def read_snapshot(parts: Parts, now: float, *, save: bool) -> BudgetSnapshot:
    """Measure up to now, and read Slurm. Raises SlurmError or StateError.

    Attempts that can't be read leave the figures as they were: a pass goes on with them.
    """
    memory = files.load(parts.folder)
    jobs = parts.slurm_limits.jobs()
    for memory in _measured(parts, memory, jobs, now):  # noqa: B020 - the next one
        if save:
            files.save(parts.folder, memory)
    accounts = {name for item in parts.config.budgets.values() for name in item.accounts}
    accounts |= memory.limited | memory.held.keys() | memory.refused
    needs_partitions = bool(memory.denied or parts.config.budgets or parts.config.weights)
    partitions = parts.slurm_limits.partitions() if needs_partitions else {}
    return BudgetSnapshot(
        now=now,
        config=parts.config,
        memory=memory,
        limits=parts.slurm_limits.read(sorted(accounts)),
        jobs=jobs,
        rates=_rates(parts, jobs, now),
        denied={name: item.denied for name, item in partitions.items()},
        weights={name: item.weights for name, item in partitions.items()},
        purchases=tuple(parts.spending.purchases(now)) if parts.config.weights else (),
    )


def _measured(
    parts: Parts, memory: Memory, jobs: tuple[BilledJob, ...], now: float
) -> Iterator[Memory]:
    """Yield the memory after each part of the measured time.

    An instance without an end in the ledger is billed until now. So nothing is measured before
    reconcile has looked at EC2: spot instances may have ended while the head was away. The first
    pass after it measures that time too.
    """
    if reason := parts.stale_ledger(now):
        parts.log.warning(LogEvent.BUDGET_FIGURES_STALE, message=reason)
        return
    try:
        yield from parts.spending.measured(memory, jobs, now)
    except SlurmError as error:
        parts.log.warning(LogEvent.BUDGET_FIGURES_STALE, message=error.message)


def _rates(parts: Parts, jobs: tuple[Any, ...], now: float) -> dict[int, Decimal]:
    running = [job for job in jobs if job.running and job.nodes and job.begin]
    by_place = rates(parts.spending.instances(now), allocations(running, parts.config, now), now)
    return {running[place].id: rate for place, rate in by_place.items()}


def run_pass(snapshot: BudgetSnapshot, parts: Parts) -> BudgetPlan:
    """Carry out one pass.

    Raises StateError if the memory can't be saved, with nothing changed then.
    Slurm's own limits are remembered before ours take their place, and until they are back. A
    change that fails is made by the next pass, which compares Slurm with the plan again. So is a
    comment that was not written. While a budget's lower limit is refused, its accounts get none
    that is higher.
    """
    made = plan(snapshot)
    for item in made.reached:
        _announce(item, parts, snapshot.now)
    meanwhile = memory_meanwhile(snapshot.memory, made.memory)
    files.save(parts.folder, meanwhile)
    written: set[int] = set()
    comments = [Change(partial(_comment, item, parts, written)) for item in made.notices]
    done = _change_all([*_changes(made, parts, snapshot.now), *comments], parts.log)
    unwritten = {item.job for item in made.notices} - written
    notes = {job: text for job, text in made.memory.notes.items() if job not in unwritten}
    final = replace(made.memory if done else meanwhile, notes=notes)
    if final != meanwhile:
        files.save(parts.folder, final)
    if any(item.stale for item in made.figures):
        parts.log.warning(
            LogEvent.BUDGET_FIGURES_STALE,
            message=f"spending is known until {snapshot.memory.measured_until:.0f}, which is more"
            f" than {STALE:.0f} s ago: no new step is taken",
        )
    return made


def _change_all(changes: Iterable[Change], log: Log) -> bool:
    """Change Slurm, and return whether nothing failed."""
    refused: set[str] = set()
    done = True
    for change in changes:
        limit = change.limit
        if limit is not None and limit.raises and limit.budget in refused:
            done = False
            continue
        try:
            change.make()
        except SlurmUnreachable as error:
            log.warning(LogEvent.BUDGET_CHANGE_FAILED, message=error.message)
            return False  # what it did, the next pass sees
        except SlurmRefused as error:
            log.warning(LogEvent.BUDGET_CHANGE_FAILED, message=error.message)
            if limit is not None and limit.budget is not None and not limit.raises:
                refused.add(limit.budget)
            done = False
    return done


def _comment(notice: JobNotice, parts: Parts, written: set[int]) -> None:
    """Write a job's line; one that Slurm refuses is not tried again."""
    try:
        parts.slurm.comment(notice.job, notice.text)
    except SlurmRefused as error:  # the job has ended
        parts.log.warning(LogEvent.BUDGET_CHANGE_FAILED, job=notice.job, message=error.message)
    written.add(notice.job)


def _changes(made: BudgetPlan, parts: Parts, now: float) -> Iterator[Change]:
    """Yield the changes in Slurm, each with its audit line."""
    logged = partial(_logged, parts, now)
    limits, slurm = parts.slurm_limits, parts.slurm
    changed = LogEvent.BUDGET_LIMIT_CHANGED
    for limit in made.limits:
        work = partial(limits.set_limit, limit.account, limit.setting, limit.value)
        yield Change(logged(work, changed, **limit.fields), limit)
    for denial in made.denials:
        work = partial(limits.deny_accounts, denial.partition, sorted(denial.accounts))
        yield Change(logged(work, changed, **denial.fields))
    for change in made.weights:
        work = partial(limits.set_weights, change.partition, change.weights)
        yield Change(logged(work, changed, **change.fields))
    for job in made.requeues:
        yield Change(logged(partial(slurm.requeue, job), LogEvent.BUDGET_JOB_REQUEUED, job=job))
    for make, event, jobs in (
        (limits.hold, LogEvent.BUDGET_JOBS_HELD, made.holds),
        (limits.release, LogEvent.BUDGET_JOBS_RELEASED, made.releases),
    ):
        if jobs:
            yield Change(logged(partial(make, jobs), event, jobs=list(jobs)))


def _logged(
    parts: Parts, now: float, work: Callable[[], None], event: LogEvent, **fields: Any
) -> Callable[[], None]:
    """Return the work, followed by its lines in log and audit file."""

    def do() -> None:
        work()
        parts.log.info(event, **fields)
        files.audit(parts.folder, now, event.value, **fields)

    return do


def _announce(item: Reached, parts: Parts, now: float) -> None:
    """Log a step that was reached, and tell the budget's program."""
    fields = {"step": item.step.percent, "action": item.step.action.value}
    value = {**printable_figures(item.figures), **fields}
    name = item.figures.budget.name
    event = LogEvent.BUDGET_STEP_REACHED
    words = {
        key: value[key] for key in ("accounts", "projects", "usd", "usd_spent", "usd_committed")
    }
    parts.log.info(event, budget=name, **fields, **words)
    files.audit(parts.folder, now, event.value, budget=name, **fields, **words)
    if item.figures.budget.notify:
        text = json.dumps(value)
        result = parts.runner.run(
            item.figures.budget.notify, timeout=PROGRAM_SECONDS, stdin=text + "\n"
        )
        if result.returncode:
            parts.log.warning(
                LogEvent.BUDGET_PROGRAM_FAILED,
                budget=name,
                exit_code=result.returncode,
                message=result.stderr[-300:],
            )
