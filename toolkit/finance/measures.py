"""The numbers of a manager's page, each made of a report's charges and attempts.

A ratio without a denominator has no value. It is shown as "no data", never as 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.money import SECONDS_PER_HOUR
from toolkit.finance.charges_by_day import charges_by_day
from toolkit.finance.outcomes import Cause, Outcomes
from toolkit.finance.recorded_choices import NO_CHOICES, RecordedChoices
from toolkit.finance.savings import USE, Ledger, Measure, is_cloud_node, ledger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from toolkit.accounting.report import Report
    from toolkit.finance.charges_by_day import DayCharge
    from toolkit.finance.list_prices import ListPrices

_CAUSE_OF_COMPONENT = {
    Component.BOOT: Cause.BOOT,
    Component.WAIT: Cause.BOOT,
    Component.FAILED_LAUNCH: Cause.FAULT,
    Component.IDLE_GAP: Cause.IDLE,
    Component.IDLE_TAIL: Cause.IDLE,
    Component.IDLE: Cause.IDLE,
    Component.MINIMUM: Cause.IDLE,
    Component.RACK_IDLE: Cause.IDLE,
    Component.UNALLOCATED: Cause.UNALLOCATED,
    Component.COMMITMENT: Cause.COMMITMENT,
}
EXPERIMENTS = 1000
"""The number of ended jobs that a cost is stated for."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A part of a whole, or an amount for each of a number."""

    part: Fraction
    whole: Fraction

    @property
    def value(self) -> Fraction | None:
        """Return the quotient; None if there is nothing to divide by."""
        return self.part / self.whole if self.whole else None


@dataclass(frozen=True, slots=True)
class Measures:
    """The numbers of one report. Amounts are micro-dollars."""

    cost: int
    spot_share: Ratio  # of the hours of nodes
    utilisation: Ratio  # hours with work, of the paid hours of nodes
    success: Ratio  # completed jobs, of those that completed or failed
    checkpoints: Ratio | None  # None: not measured
    gpu_hour: Ratio
    completed_job: Ratio
    experiments: Ratio  # for 1,000 of them
    median_wait: int | None  # seconds
    long_wait: int | None  # seconds within which nine of ten attempts started
    waste: Mapping[Cause, int]
    savings: Ledger
    spend: Mapping[date, Mapping[str, int]]  # by day and account; "" is the cluster

    @property
    def wasted(self) -> int:
        """Return the sum of all waste."""
        return sum(self.waste.values())


def measures(report: Report, prices: ListPrices, choices: RecordedChoices = NO_CHOICES) -> Measures:
    """Return the numbers of a report."""
    outcomes = Outcomes(report)
    parts = list(charges_by_day(report))
    ended = outcomes.ended_jobs
    net = Fraction(report.net)
    return Measures(
        cost=report.net,
        spot_share=_spot_share(report),
        utilisation=_utilisation(report),
        success=Ratio(Fraction(len(ended.completed)), Fraction(ended.count)),
        checkpoints=checkpoints(outcomes),
        gpu_hour=Ratio(_gpu_cost(outcomes), Fraction(outcomes.gpu_seconds, SECONDS_PER_HOUR)),
        completed_job=Ratio(net, Fraction(len(ended.completed))),
        experiments=Ratio(net * EXPERIMENTS, Fraction(ended.count)),
        median_wait=at_share(outcomes.waits, Fraction(1, 2)),
        long_wait=at_share(outcomes.waits, Fraction(9, 10)),
        waste=waste(outcomes),
        savings=ledger(report, prices, parts, outcomes, choices),
        spend=spend(report, parts),
    )


def at_share(values: Sequence[int], share: Fraction) -> int | None:
    """Return the smallest value that a share of all does not exceed.

    The values are in rising order; None without any.
    """
    if not values:
        return None
    position = -(-share.numerator * len(values) // share.denominator)
    return values[max(position, 1) - 1]


def spend(report: Report, parts: Sequence[DayCharge]) -> dict[date, dict[str, int]]:
    """Return the cost by day and account, in the order of days.

    The cost that no job pays has the account "".
    """
    sums: dict[date, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for part in parts:
        key = part.charge.attempt
        account = "" if key is None else report.attempts[key].account or "(no account)"
        sums[part.day][account] += part.micro
    return {day: dict(sums[day]) for day in sorted(sums)}


def waste(outcomes: Outcomes) -> dict[Cause, int]:
    """Return the cost without useful work, by its cause.

    The largest comes first. An instance that EC2 refunded wasted nothing.
    """
    sums: dict[Cause, int] = defaultdict(int)
    for cost in outcomes.report.costs:
        for charge in () if cost.refund else cost.charges:
            cause = _CAUSE_OF_COMPONENT.get(charge.component)
            if charge.component is Component.LOST and charge.attempt is not None:
                cause = outcomes.causes.get(charge.attempt, Cause.FAULT)
            if cause is not None:
                sums[cause] += charge.micro
    known = [cause for cause in Cause if sums[cause]]
    return {cause: sums[cause] for cause in sorted(known, key=lambda one: -sums[one])}


def checkpoints(outcomes: Outcomes) -> Ratio | None:
    """Return how many attempts that ended early had saved a checkpoint.

    Jobs that never left a mark, and never asked for a requeue, write none that Slurm knows of.
    None if there is no other job: then nothing was measured.
    """
    saving_jobs = [
        attempts
        for attempts in outcomes.jobs.values()
        if any(item.requeue_requested or item.checkpoint_marks() for item in attempts)
    ]
    if not saving_jobs:
        return None
    early = [
        item
        for attempts in saving_jobs
        for item in attempts
        if item.requeue_requested or outcomes.causes.get(item.key) is Cause.INTERRUPTION
    ]
    saved = [item for item in early if item.requeue_requested or item.checkpoint() is not None]
    return Ratio(Fraction(len(saved)), Fraction(len(early)))


def spot_saving(measured: Measures) -> int:
    """Return the net savings of spot, in micro-dollars."""
    return measured.savings.total(Measure.SPOT).net


def _spot_share(report: Report) -> Ratio:
    seconds = {True: Fraction(0), False: Fraction(0)}
    for cost in report.costs:
        instance = report.instances[cost.instance_id]
        if is_cloud_node(instance):
            seconds[instance.spot] += cost.seconds
    return Ratio(seconds[True], seconds[True] + seconds[False])


def _utilisation(report: Report) -> Ratio:
    used = paid = Fraction(0)
    for cost in report.costs:
        if is_cloud_node(report.instances[cost.instance_id]):
            for charge in cost.charges:
                paid += charge.seconds
                used += charge.seconds if charge.component in USE else 0
    return Ratio(used, paid)


def _gpu_cost(outcomes: Outcomes) -> Fraction:
    """Return the cost of jobs with GPUs, all components."""
    with_gpus = {key for key, attempt in outcomes.attempts.items() if attempt.tres.gpus}
    charges = outcomes.report.charges()
    return Fraction(sum(charge.micro for charge in charges if charge.attempt in with_gpus))
