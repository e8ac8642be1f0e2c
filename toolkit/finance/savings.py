"""The savings ledger: what was done to spend less, what it saved, and what it cost.

Each line compares with a stated other way, at the on-demand price. The lines compare with
different ways, so they are never added up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.days import DAY, day_of
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import SECONDS_PER_HOUR, exact_amount, round_to_micro
from toolkit.finance.outcomes import Cause, Outcomes
from toolkit.finance.recorded_choices import NO_CHOICES, RecordedChoices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date
    from decimal import Decimal

    from toolkit.accounting.charges import Charge
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.report import Report
    from toolkit.finance.charges_by_day import DayCharge
    from toolkit.finance.list_prices import ListPrices
    from toolkit.quote.planned_starts import PlannedStart
    from toolkit.quote.right_sizes import RightSize

_REBOOT = frozenset({Component.BOOT, Component.WAIT})
USE = frozenset({Component.WORK, Component.LOST})


class Measure(StrEnum):
    """A way in which the cluster spent less."""

    SPOT = "spot instances"
    REUSE = "reuse of instances"
    POWER_DOWN = "power-down of idle nodes"
    RIGHT_SIZE = "right size"
    LATER_START = "later start"

    @property
    def against(self) -> str:
        """Return the other way, with which it is compared."""
        return _AGAINST[self]

    @property
    def unit(self) -> str:
        """Return the unit of what was done."""
        return "starts" if self is Measure.REUSE else "hours"


_AGAINST = {
    Measure.SPOT: "the same hours on demand, without lost work and re-boots by interruptions",
    Measure.REUSE: "a new instance for each start, at the mean cost of a boot of its type",
    Measure.POWER_DOWN: "the same nodes on demand, powered up for the whole time",
    Measure.RIGHT_SIZE: "the same samples on the GPUs before, at both measured speeds, on demand",
    Measure.LATER_START: "the same hours at the spot price of the moment of submission",
}


@dataclass(frozen=True, slots=True)
class Saving:
    """A line of the ledger: one measure in one month. Amounts are micro-dollars."""

    month: str  # 2026-11
    measure: Measure
    quantity: Fraction  # hours or starts
    saved: int
    cost: int  # what the measure itself took

    @property
    def net(self) -> int:
        """Return what was saved, less what it cost."""
        return self.saved - self.cost


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines by month, and what is in no line."""

    lines: tuple[Saving, ...]
    unpriced: tuple[str, ...] = ()  # instances of which no list price is known
    unknown: Mapping[Measure, int] = field(default_factory=dict)
    """Jobs that a recorded choice changed, and nobody knows what that saved."""

    def total(self, measure: Measure) -> Saving:
        """Return the sum of a measure over all months."""
        lines = [line for line in self.lines if line.measure is measure]
        return Saving(
            "",
            measure,
            sum((line.quantity for line in lines), Fraction(0)),
            sum(line.saved for line in lines),
            sum(line.cost for line in lines),
        )


@dataclass(slots=True)
class _Sums:
    """The sums of one measure in one month."""

    quantity: Fraction = Fraction(0)
    saved: Fraction = Fraction(0)
    cost: Fraction = Fraction(0)


@dataclass(slots=True)
class _Facts:
    """The facts of all lines."""

    report: Report
    prices: ListPrices
    outcomes: Outcomes
    parts: Sequence[DayCharge]
    choices: RecordedChoices
    sums: dict[tuple[str, Measure], _Sums] = field(default_factory=lambda: defaultdict(_Sums))
    unpriced: set[str] = field(default_factory=set)
    unknown: dict[Measure, int] = field(default_factory=dict)

    def nodes(self) -> Iterator[tuple[DayCharge, Instance]]:
        """Yield the parts of nodes in the cloud with a known price."""
        for part in self.parts:
            instance = self.report.instances.get(part.charge.instance_id)
            if instance is not None and is_cloud_node(instance) and part.charge.price_known:
                yield part, instance

    def price(self, instance: Instance, second: int) -> Decimal | None:
        """Return the on-demand price of an hour; None if not known."""
        price = self.prices.contracted(instance, second)
        if price is None:
            self.unpriced.add(instance.instance_id)
        return price

    def count_unknown(self, measure: Measure) -> None:
        """Count a job whose saving nobody knows."""
        self.unknown[measure] = self.unknown.get(measure, 0) + 1


def is_cloud_node(instance: Instance) -> bool:
    """Return whether jobs may run on an instance."""
    return instance.kind is Kind.INSTANCE and bool(instance.node) and not instance.is_head


def month(day: date) -> str:
    """Return the month of a day, such as 2026-11."""
    return f"{day:%Y-%m}"


def ledger(
    report: Report,
    prices: ListPrices,
    parts: Sequence[DayCharge],
    outcomes: Outcomes,
    choices: RecordedChoices = NO_CHOICES,
) -> Ledger:
    """Return the savings of a report."""
    facts = _Facts(report, prices, outcomes, parts, choices)
    _spot(facts)
    _reuse(facts)
    _power_down(facts)
    _right_size(facts)
    _later_start(facts)
    lines = [
        Saving(
            name,
            measure,
            sums.quantity,
            round_to_micro(sums.saved),
            round_to_micro(sums.cost),
        )
        for (name, measure), sums in facts.sums.items()
    ]
    order = list(Measure)
    lines.sort(key=lambda line: (line.month, order.index(line.measure)))
    return Ledger(tuple(lines), tuple(sorted(facts.unpriced)), facts.unknown)


def _spot(facts: _Facts) -> None:
    """Add the hours of spot instances, and what interruptions took."""
    for part, instance in facts.nodes():
        is_loss = _by_interruption(facts, part.charge)
        if not (instance.spot or is_loss):
            continue
        price = facts.price(instance, part.start)
        if price is None:
            continue
        sums = facts.sums[month(part.day), Measure.SPOT]
        listed = exact_amount(price, 1) * part.seconds
        if instance.spot:
            sums.quantity += part.seconds / SECONDS_PER_HOUR
            sums.saved += listed - part.micro
        sums.cost += listed * is_loss


def _by_interruption(facts: _Facts, charge: Charge) -> bool:
    """Return whether an interruption caused lost work or a boot."""
    if charge.attempt is None:
        return False
    if charge.component is Component.LOST:
        return facts.outcomes.causes.get(charge.attempt) is Cause.INTERRUPTION
    return charge.component in _REBOOT and charge.attempt in facts.outcomes.after_interruption


def _reuse(facts: _Facts) -> None:
    """Add the starts on instances that were up already."""
    boots = _mean_boots(facts)
    users: dict[str, set[int]] = defaultdict(set)
    for part, instance in facts.nodes():
        charge = part.charge
        if charge.component in USE and charge.attempt is not None:
            users[instance.instance_id].add(charge.attempt)
        if charge.component is Component.IDLE_GAP:
            facts.sums[month(part.day), Measure.REUSE].cost += part.micro
    for instance_id, keys in users.items():
        boot = boots.get(facts.report.instances[instance_id].instance_type, Fraction(0))
        starts = sorted((facts.outcomes.attempts[key].started or 0) for key in keys)
        for start in starts[1:]:
            second = max(start, facts.report.window.since)
            sums = facts.sums[month(day_of(second)), Measure.REUSE]
            sums.quantity += 1
            sums.saved += boot


def _mean_boots(facts: _Facts) -> Mapping[str, Fraction]:
    """Return the mean cost of a boot, by instance type."""
    costs: dict[str, int] = defaultdict(int)
    booted: dict[str, set[str]] = defaultdict(set)
    for part, instance in facts.nodes():
        if part.charge.component is Component.BOOT:
            costs[instance.instance_type] += part.micro
            booted[instance.instance_type].add(instance.instance_id)
    return {name: Fraction(micro, len(booted[name])) for name, micro in costs.items()}


def _power_down(facts: _Facts) -> None:
    """Add the hours of nodes without instances, and their boots."""
    up: dict[tuple[str, date], Fraction] = defaultdict(Fraction)
    last: dict[str, Instance] = {}
    for part, instance in facts.nodes():
        up[instance.node, part.day] += part.seconds
        if instance.node not in last or last[instance.node].launched <= instance.launched:
            last[instance.node] = instance
        if part.charge.component in _REBOOT:
            facts.sums[month(part.day), Measure.POWER_DOWN].cost += part.micro
    for name, instance in sorted(last.items()):
        for start, end in _days_of(facts.report):
            down = max(end - start - up.get((name, day_of(start)), Fraction(0)), Fraction(0))
            price = facts.price(instance, start)
            if price is not None:
                sums = facts.sums[month(day_of(start)), Measure.POWER_DOWN]
                sums.quantity += down / SECONDS_PER_HOUR
                sums.saved += exact_amount(price, 1) * down


def _right_size(facts: _Facts) -> None:
    """Add the work of runs on GPUs that were recommended for them."""
    parts: dict[RightSize, list[tuple[DayCharge, Fraction]]] = defaultdict(list)
    unknown = set()
    for part in _work_of(facts, facts.choices.right_sizes):
        size = facts.choices.size_of(facts.outcomes.attempts[part.charge.attempt or 0])
        if size is None or part.charge.component is not Component.WORK:
            continue
        instance = facts.report.instances[part.charge.instance_id]
        is_same = _has_type(facts, part, size.instance_type)
        price = facts.price(instance, part.start) if is_same else None
        if size.ratio is None or price is None:
            unknown.add(size)
            continue
        parts[size].append((part, exact_amount(price, 1) * part.seconds * (size.ratio - 1)))
    for _ in unknown:
        facts.count_unknown(Measure.RIGHT_SIZE)
    for size, own in parts.items():
        for part, saved in own if size not in unknown else ():
            sums = facts.sums[month(part.day), Measure.RIGHT_SIZE]
            sums.quantity += part.seconds / SECONDS_PER_HOUR
            sums.saved += saved


def _later_start(facts: _Facts) -> None:
    """Add the hours of jobs that began when `--cheapest` had chosen.

    A job of which a part ran on another type is in no sum: its hours can't be compared.
    """
    parts: dict[PlannedStart, list[DayCharge]] = defaultdict(list)
    for part in _work_of(facts, facts.choices.later_starts):
        start = facts.choices.start_of(facts.outcomes.attempts[part.charge.attempt or 0])
        if start is not None:
            parts[start].append(part)
    for start, own in parts.items():
        if not all(_has_type(facts, part, start.instance_type) for part in own):
            facts.count_unknown(Measure.LATER_START)
            continue
        for part in own:
            sums = facts.sums[month(part.day), Measure.LATER_START]
            sums.quantity += part.seconds / SECONDS_PER_HOUR
            sums.saved += exact_amount(start.usd_per_hour, 1) * part.seconds - part.micro


def _work_of(facts: _Facts, choices: Sequence[object]) -> Iterator[DayCharge]:
    """Yield the parts with work of jobs.

    None is looked at where no choice was recorded.
    """
    for part in facts.parts if choices else ():
        charge = part.charge
        is_share = charge.instance_id not in facts.report.instances
        if charge.component in USE and charge.attempt is not None and not is_share:
            yield part


def _has_type(facts: _Facts, part: DayCharge, instance_type: str) -> bool:
    """Return whether a part has a known price, on this type."""
    instance = facts.report.instances[part.charge.instance_id]
    is_same = is_cloud_node(instance) and instance.instance_type == instance_type
    return is_same and part.charge.price_known


def _days_of(report: Report) -> Iterator[tuple[int, int]]:
    position = report.window.since
    while position < report.window.until:
        midnight = min((position // DAY + 1) * DAY, report.window.until)
        yield position, midnight
        position = midnight
