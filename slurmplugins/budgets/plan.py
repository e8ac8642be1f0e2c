"""Plan one pass: figures of all budgets, and the changes in Slurm that follow. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets.figures import CENT, Figures, Spending, figures
from slurmplugins.budgets.limit_changes import limit_changes
from slurmplugins.budgets.memory import Saved
from slurmplugins.budgets.project_holds import project_holds, requeued
from slurmplugins.budgets.shares import shares
from slurmplugins.budgets.weights import weight_changes
from slurmplugins.budgets.words import Cause, note
from slurmplugins.config.budgets import Action
from slurmplugins.model.account_limits import UNITS_PER_USD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from slurmplugins.budgets.limit_changes import LimitChange
    from slurmplugins.budgets.memory import Memory, Override
    from slurmplugins.budgets.weights import Purchase, WeightChange
    from slurmplugins.config.budgets import Budget, BudgetsConfig, BudgetStep
    from slurmplugins.model.account_limits import AccountLimits, BilledJob

NOTICES: Final = 20
"""Jobs that get a comment in one pass: each is a call of scontrol."""
WAITS: Final = (
    "AssocGrpBillingMinutes",
    "AssocGrpBillingRunMinutes",
    "AssocGrpSubmitJobsLimit",
)
"""Slurm's reasons of a job that waits for a budget. Under DenyAccounts it gives none."""


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """Slurm and the memory, as a pass has read them."""

    now: float
    config: BudgetsConfig
    memory: Memory
    limits: Mapping[str, AccountLimits]
    jobs: tuple[BilledJob, ...] = ()
    rates: Mapping[int, Decimal] = field(default_factory=dict)
    """US dollars an hour of running jobs, at the price of their instances."""
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """DenyAccounts by partition, as slurmctld has it."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """TRESBillingWeights by partition, as slurmctld has it."""
    purchases: tuple[Purchase, ...] = ()


@dataclass(frozen=True, slots=True)
class DenyChange:
    """A partition's new DenyAccounts."""

    partition: str
    accounts: frozenset[str]
    why: str

    @property
    def fields(self) -> dict[str, Any]:
        """Return the change as values for a log line and for JSON."""
        return {
            "partition": self.partition,
            "setting": "DenyAccounts",
            "value": ",".join(sorted(self.accounts)),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class JobNotice:
    """A line for a waiting job's AdminComment."""

    job: int
    text: str


@dataclass(frozen=True, slots=True)
class Reached:
    """A budget step that was reached in this pass."""

    figures: Figures
    step: BudgetStep


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """The work of one pass."""

    figures: tuple[Figures, ...]
    limits: tuple[LimitChange, ...]
    denials: tuple[DenyChange, ...]
    requeues: tuple[int, ...]
    holds: tuple[int, ...]
    """Waiting jobs of projects that must not start."""
    releases: tuple[int, ...]
    """Jobs of projects that we held, and that may start."""
    notices: tuple[JobNotice, ...]
    reached: tuple[Reached, ...]
    memory: Memory
    """The memory of the next pass, once all of it is done."""
    problems: tuple[str, ...] = ()
    weights: tuple[WeightChange, ...] = ()


def plan(snapshot: BudgetSnapshot) -> BudgetPlan:
    """Return the figures, and the changes that make Slurm hold them."""
    config, memory, jobs, now = snapshot.config, snapshot.memory, snapshot.jobs, snapshot.now
    all_figures = tuple(
        figures(budget, memory, _spending(snapshot, budget), now)
        for budget in config.budgets.values()
    )
    by_account = _current(all_figures, now, attrgetter("accounts"))
    by_project = _current(all_figures, now, attrgetter("projects"))
    projects = project_holds(config, jobs, by_project, memory.held_jobs)
    problems = tuple(
        f"account {name} is not in slurmdbd: `toolkit accounts apply`"
        for name in sorted(by_account.keys() - snapshot.limits.keys())
    )
    by_account = {name: item for name, item in by_account.items() if name in snapshot.limits}
    denied = _denied(snapshot, by_account)
    parts = shares(by_account, jobs, config)
    lines = {**_lines(snapshot, by_account, denied, parts), **projects.notes}
    notices = tuple(islice(_notices(snapshot, lines), NOTICES))
    return BudgetPlan(
        figures=all_figures,
        limits=limit_changes(snapshot, by_account, parts),
        denials=tuple(_denials(snapshot, denied)),
        requeues=tuple(
            sorted({*_requeues(snapshot, by_account), *requeued(config, jobs, by_project)})
        ),
        holds=projects.holds,
        releases=projects.releases,
        notices=notices,
        reached=tuple(_reached(all_figures, memory)),
        memory=replace(
            _with_limits(snapshot, by_account),
            standings={item.budget.name: item.standing for item in all_figures},
            overrides=_overrides(snapshot),
            denied=denied,
            held_jobs=projects.ours,
            notes=_notes(snapshot, notices),
        ),
        problems=problems,
        weights=tuple(weight_changes(config.weights, snapshot.purchases, snapshot.weights)),
    )


def _spending(snapshot: BudgetSnapshot, budget: Budget) -> Spending:
    config = snapshot.config
    accounts, projects = config.accounts_of(budget), frozenset(budget.projects)
    committed = Decimal(0)
    for job in snapshot.jobs:
        is_paid = job.account in accounts or config.project_of(job.account, job.wckey) in projects
        if job.running and is_paid:
            rate = snapshot.rates.get(job.id, job.usd_per_hour)
            left = max(0.0, (job.end or snapshot.now) - snapshot.now) + snapshot.config.tail
            committed += rate * Decimal(left) / 3600
    return Spending(accounts, projects, committed.quantize(CENT))


def _current(
    all_figures: tuple[Figures, ...], now: float, names_of: Callable[[Budget], tuple[str, ...]]
) -> dict[str, Figures]:
    """Return the one budget of each account, or project, that holds now.

    A grant that has not begun holds nothing. One that ended holds until another one begins.
    """
    result: dict[str, Figures] = {}
    for item in all_figures:
        if now < item.period.begin:
            continue
        for name in names_of(item.budget):
            other = result.get(name)
            if other is None or item.period.begin > other.period.begin:
                result[name] = item
    return result


def _with_limits(snapshot: BudgetSnapshot, by_account: Mapping[str, Figures]) -> Memory:
    """Return the memory with the limits that are ours after this pass.

    An account's own limits are remembered once, before ours take their place.
    """
    memory, held, refused = snapshot.memory, {}, set()
    for name, item in by_account.items():
        limits = snapshot.limits[name]
        if item.holds:
            held[name] = memory.held.get(name) or Saved(limits.run_minutes, limits.submissions)
        if Action.REFUSE in item.actions:
            refused.add(name)
    limited = {name for name, item in by_account.items() if item.free is not None}
    return replace(memory, limited=frozenset(limited), held=held, refused=frozenset(refused))


def _denied(
    snapshot: BudgetSnapshot, by_account: Mapping[str, Figures]
) -> dict[str, frozenset[str]]:
    """Return our accounts in each partition's DenyAccounts, once this pass is done."""
    accounts = frozenset(
        account
        for name, item in by_account.items()
        if Action.SPOT_ONLY in item.actions
        for account in snapshot.config.family(name)
    )
    return dict.fromkeys(snapshot.config.on_demand, accounts) if accounts else {}


def _denials(
    snapshot: BudgetSnapshot, denied: Mapping[str, frozenset[str]]
) -> Iterator[DenyChange]:
    for partition in sorted(denied.keys() | snapshot.memory.denied.keys()):
        current = snapshot.denied.get(partition)
        if current is None:
            continue  # the partition is gone
        ours = snapshot.memory.denied.get(partition, frozenset())
        target = (current - ours) | denied.get(partition, frozenset())
        if target != current:
            yield DenyChange(partition, target, "spot-only")


def _requeues(snapshot: BudgetSnapshot, by_account: Mapping[str, Figures]) -> Iterator[int]:
    accounts = {
        account
        for name, item in by_account.items()
        if item.requeues
        for account in snapshot.config.family(name)
    }
    for job in snapshot.jobs:
        if job.account in accounts and job.requeue_saves:
            yield job.id


def _notices(snapshot: BudgetSnapshot, lines: Mapping[int, str]) -> Iterator[JobNotice]:
    """Yield the lines that waiting jobs do not have yet."""
    for job in snapshot.jobs:
        text = lines.get(job.id)
        if text is not None and snapshot.memory.notes.get(job.id) != text:
            yield JobNotice(job.id, text)


def _lines(
    snapshot: BudgetSnapshot,
    by_account: Mapping[str, Figures],
    denied: Mapping[str, frozenset[str]],
    parts: Mapping[str, int | None],
) -> dict[int, str]:
    """Return the line of each job that waits for its account's budget."""
    lines = {}
    for job in snapshot.jobs:
        item = _figures_of(job, snapshot, by_account)
        waits = job.reason in WAITS and not (item and _gets_room(job, item, snapshot, parts))
        is_denied = bool(job.partitions) and all(
            job.account in denied.get(name, ()) for name in job.partitions
        )
        if item is not None and (waits or is_denied):
            lines[job.id] = note(item, Cause.TOO_LITTLE if waits else Cause.SPOT_ONLY)
    return lines


def _gets_room(
    job: BilledJob, item: Figures, snapshot: BudgetSnapshot, parts: Mapping[str, int | None]
) -> bool:
    """Return whether a shared budget's job gets its room now."""
    if len(item.budget.accounts) == 1 or item.holds or item.stale or job.usd_until_limit is None:
        return False
    family = snapshot.config.family
    return all(
        job.usd_until_limit * UNITS_PER_USD <= (parts.get(name) or 0) * job.tasks
        for name in item.budget.accounts
        if job.account in family(name)
    )


def _figures_of(
    job: BilledJob, snapshot: BudgetSnapshot, by_account: Mapping[str, Figures]
) -> Figures | None:
    """Return the budget that a waiting job waits for.

    Of the budgets above it, that is the one with the least left.
    """
    if not job.pending:
        return None
    items = [
        item
        for name, item in by_account.items()
        if job.account in snapshot.config.family(name) and (item.free is not None or item.actions)
    ]
    return min(items, key=lambda item: (item.free is None, item.free or 0), default=None)


def _overrides(snapshot: BudgetSnapshot) -> dict[str, Override]:
    """Return the overrides that have not ended."""
    return {
        name: item
        for name, item in snapshot.memory.overrides.items()
        if item.until > snapshot.now and name in snapshot.config.budgets
    }


def _notes(snapshot: BudgetSnapshot, notices: tuple[JobNotice, ...]) -> dict[int, str]:
    """Return the last lines of jobs that still wait."""
    notes = {**snapshot.memory.notes, **{item.job: item.text for item in notices}}
    waiting = {job.id for job in snapshot.jobs if job.pending}
    return {number: text for number, text in notes.items() if number in waiting}


def _reached(all_figures: tuple[Figures, ...], memory: Memory) -> Iterator[Reached]:
    for item in all_figures:
        known = memory.standings.get(item.budget.name)
        before = known.percent if known and known.period == item.period.begin else 0
        for step in item.budget.steps:
            if before < step.percent <= item.standing.percent:
                yield Reached(item, step)
