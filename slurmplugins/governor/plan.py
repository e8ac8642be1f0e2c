"""Plan one pass over the whole queue. Pure: no input or output.

Jobs are looked at by Slurm's own priority. Those that burst already come first, since their cost is
promised: so the promises to an account never exceed what its budget has left.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from slurmplugins.governor.decide import Decision, Facts, decide
from slurmplugins.governor.spending import Burst, Spending, observe, spent
from slurmplugins.governor.words import note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurmplugins.config.governor import GovernorConfig, RackRule
    from slurmplugins.model.queued_job import QueuedJob, QueuePartition


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The queue, the partitions and the memory, as a pass has read them."""

    now: float
    config: GovernorConfig
    jobs: tuple[QueuedJob, ...]
    partitions: Mapping[str, QueuePartition]
    spending: Spending = field(default_factory=Spending)
    cloud_problems: Mapping[str, str] = field(default_factory=dict)
    """Why nothing may be launched now, by the cloud's partition."""


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A job's new list of partitions, racks first."""

    job: int
    family: int
    label: str
    partitions: tuple[str, ...]
    bursts: bool
    why: str
    tasks: int = 1
    """More than one: Slurm may refuse some tasks of an array, and change the others."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for a job's AdminComment."""

    job: int
    text: str


@dataclass(frozen=True, slots=True)
class GovernorPlan:
    """The work of one pass."""

    decisions: tuple[Decision, ...]
    changes: tuple[PartitionChange, ...]
    notices: tuple[Notice, ...]
    spending: Spending
    """The memory of the next pass, once all of it is done."""
    committed: Mapping[str, Decimal] = field(default_factory=dict)
    """By account: the worst cost of the jobs that may burst and wait."""


def plan(snapshot: QueueSnapshot) -> GovernorPlan:
    """Return all decisions, and the changes that follow from them."""
    config, now = snapshot.config, snapshot.now
    spending = observe(snapshot.spending, snapshot.jobs, config, now)
    committed: dict[str, Decimal] = defaultdict(Decimal)
    decisions, changes, bursts = [], [], dict(spending.bursts)
    for job, rule in _candidates(snapshot, spending):
        facts = _facts(job, rule, snapshot, spending, committed[job.account])
        decision = decide(_with_expectation(job, spending), rule, facts, config)
        decisions.append(decision)
        if decision.bursts and decision.cost is not None:
            committed[job.account] += decision.cost.usd
            bursts[job.family] = _burst(job, rule, decision, bursts.get(job.family))
        if change := _change(job, rule, decision):
            changes.append(change)
            if not decision.bursts and not _still_bursts(job, snapshot.jobs, rule):
                bursts.pop(job.family, None)
    for change in _without_rule(snapshot, spending):
        changes.append(change)
        bursts.pop(change.family, None)
    notices = tuple(_notices(decisions, spending))
    noted = {**spending.notes, **{item.job: item.text for item in notices}}
    return GovernorPlan(
        tuple(decisions),
        tuple(changes),
        notices,
        replace(spending, bursts=bursts, notes=noted),
        dict(committed),
    )


def has_partitions(job: QueuedJob, rule: RackRule) -> bool:
    """Return whether the job waits for racks and cloud."""
    return set(job.partitions) == {rule.rack, rule.cloud}


def _candidates(
    snapshot: QueueSnapshot, spending: Spending
) -> Iterator[tuple[QueuedJob, RackRule]]:
    """Yield the waiting jobs of racks, those that burst already first.

    A job whose user chose both partitions is not among them: it is never changed.
    """

    def key(pair: tuple[QueuedJob, RackRule]) -> tuple[bool, int, float, int]:
        job, rule = pair
        return not has_partitions(job, rule), -job.priority, job.submitted_at, job.id

    pairs = []
    for job in snapshot.jobs:
        rule = _rule_of(job, snapshot.config)
        if rule is None or not job.pending:
            continue
        if not {rule.rack, rule.cloud} <= snapshot.partitions.keys():
            continue
        if len(job.partitions) == 1 or job.family in spending.bursts:
            pairs.append((job, rule))
    yield from sorted(pairs, key=key)


def _without_rule(snapshot: QueueSnapshot, spending: Spending) -> Iterator[PartitionChange]:
    """Yield the way back for jobs whose rule is gone."""
    for job in snapshot.jobs:
        burst = spending.bursts.get(job.family)
        if burst is None or not job.pending or burst.cloud not in job.partitions:
            continue
        rule = snapshot.config.rules.get(burst.rack)
        if rule is None or rule.cloud != burst.cloud:
            rest = tuple(name for name in job.partitions if name != burst.cloud)
            partitions = rest or (burst.rack,)
            yield PartitionChange(
                job.id, job.family, job.label, partitions, False, "no-rule", job.tasks
            )


def _rule_of(job: QueuedJob, config: GovernorConfig) -> RackRule | None:
    for name in job.partitions:
        rule = config.rules.get(name)
        if rule is not None and set(job.partitions) <= {rule.rack, rule.cloud}:
            return rule
    return None


def _facts(
    job: QueuedJob,
    rule: RackRule,
    snapshot: QueueSnapshot,
    spending: Spending,
    committed: Decimal,
) -> Facts:
    budget = rule.budgets.get(job.account, Decimal(0))
    burst = spending.bursts.get(job.family)
    bursts_already = has_partitions(job, rule)
    refusal = spending.refusals.get(job.family)
    refused_change = refusal.message if refusal and not bursts_already else ""
    return Facts(
        now=snapshot.now,
        rack=snapshot.partitions[rule.rack],
        cloud=snapshot.partitions[rule.cloud],
        remaining_usd=budget - spent(spending, job.account, snapshot.now) - committed,
        cloud_problem=snapshot.cloud_problems.get(rule.cloud, ""),
        bursts_already=bursts_already,
        undone=burst is not None and burst.seen and not bursts_already,
        refusal=refused_change,
        refused_by_cloud=refusal is not None and not refusal.message,
    )


def _with_expectation(job: QueuedJob, spending: Spending) -> QueuedJob:
    """Return the job with backfill's last expectation, while backfill plans anew."""
    start = job.start_at or spending.expected.get(job.id)
    return job if start == job.start_at else replace(job, start_at=start)


def _burst(job: QueuedJob, rule: RackRule, decision: Decision, known: Burst | None) -> Burst:
    rate = decision.cost.usd_per_hour if decision.cost else Decimal(0)
    if known is not None:
        return replace(known, usd_per_hour=max(rate, known.usd_per_hour))
    return Burst(job.account, rule.rack, rule.cloud, rate, job.restarts)


def _change(job: QueuedJob, rule: RackRule, decision: Decision) -> PartitionChange | None:
    """Return the change that the decision needs, if any."""
    if decision.bursts == has_partitions(job, rule):
        return None
    partitions = (rule.rack, rule.cloud) if decision.bursts else (rule.rack,)
    why = decision.reason.value
    return PartitionChange(
        job.id, job.family, job.label, partitions, decision.bursts, why, job.tasks
    )


def _still_bursts(job: QueuedJob, jobs: tuple[QueuedJob, ...], rule: RackRule) -> bool:
    """Return whether another task of the job's array has the cloud."""
    return any(
        other.family == job.family and other.id != job.id and rule.cloud in other.partitions
        for other in jobs
    )


def _notices(decisions: list[Decision], spending: Spending) -> Iterator[Notice]:
    for decision in decisions:
        text = note(decision)
        if text and spending.notes.get(decision.job) != text:
            yield Notice(decision.job, text)
