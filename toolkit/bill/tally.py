"""Adds a bill's lines up: by class, by resource and day, by billing period. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from toolkit.bill.amounts import ZERO, add, times
from toolkit.bill.classes import (
    REFUNDING,
    LineClass,
    classify,
    effective_cost,
    is_ours,
    pricing,
    unused_is_unknown,
)
from toolkit.bill.errors import BillRefused
from toolkit.bill.lines import ANNIVERSARY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import date
    from decimal import Decimal

    from toolkit.bill.lines import BillLine

LONGEST_USAGE = timedelta(days=1)
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class ClassSum:
    """The lines of one class, copies of a line counted one by one."""

    lines: int = 0
    unblended: Decimal = ZERO
    effective: Decimal = ZERO

    def plus(self, count: int, unblended: Decimal, effective: Decimal) -> ClassSum:
        """Return the sum with further lines of one kind."""
        return ClassSum(
            self.lines + count,
            add(self.unblended, times(unblended, count)),
            add(self.effective, times(effective, count)),
        )


@dataclass(frozen=True, slots=True)
class BilledDay:
    """The bill of one resource on one day."""

    usd: Decimal = ZERO  # effective cost
    seconds: Decimal | None = ZERO  # of an instance; None: not readable
    pricings: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BillPeriod:
    """A billing period as the files have it."""

    last_day: date  # on which any usage of the AWS account began
    lines_without_invoice: int  # of what was used in the month


@dataclass(frozen=True, slots=True)
class Tally:
    """A whole bill, added up."""

    classes: Mapping[LineClass, ClassSum]
    instances: Mapping[tuple[str, date], BilledDay]  # by instance id and day
    resources: Mapping[tuple[str, date], BilledDay]  # of other resources of the cluster
    credits: Mapping[tuple[str, date], Decimal]  # credits, refunds, discounts of instances
    periods: Mapping[date, BillPeriod]  # by first day
    unreadable: Mapping[tuple[str, date | None], int]  # lines of ours that were set aside
    set_aside: tuple[str, ...] = ()  # names of lines
    unreadable_tags: int = 0
    tagged_lines: int = 0  # with the tag of any cluster
    unused_unknown: int = 0  # fees whose unused part the export lacks


@dataclass(slots=True)
class _Adding:
    """The sums while the lines are read."""

    cluster: str
    instance_ids: Collection[str]
    classes: dict[LineClass, ClassSum] = field(default_factory=dict)
    instances: dict[tuple[str, date], BilledDay] = field(default_factory=dict)
    resources: dict[tuple[str, date], BilledDay] = field(default_factory=dict)
    credits: dict[tuple[str, date], Decimal] = field(default_factory=dict)
    periods: dict[date, BillPeriod] = field(default_factory=dict)
    unreadable: dict[tuple[str, date | None], int] = field(default_factory=lambda: defaultdict(int))
    set_aside: list[str] = field(default_factory=list)
    unreadable_tags: int = 0
    tagged_lines: int = 0
    unused_unknown: int = 0

    def add(self, line: BillLine) -> None:
        count = 1 if line.has_id else line.copies
        kind = classify(line, self.cluster, self.instance_ids)
        known = ZERO if line.unblended is None else line.unblended
        if kind is LineClass.SET_ASIDE:
            self._count(kind, line.copies, ZERO, ZERO)
            self._set_aside(line)
        else:
            effective = effective_cost(line)
            self._count(kind, count, known, effective)
            self._count(LineClass.COPY, line.copies - count, known, ZERO)
            self._by_day(line, kind, times(effective, count), count)
        self._period(line)
        self.unreadable_tags += not line.tags_readable
        self.tagged_lines += line.cluster is not None
        self.unused_unknown += unused_is_unknown(line)

    def _count(self, kind: LineClass, count: int, unblended: Decimal, effective: Decimal) -> None:
        if count:
            known = self.classes.get(kind, ClassSum())
            self.classes[kind] = known.plus(count, unblended, effective)

    def _set_aside(self, line: BillLine) -> None:
        self.set_aside.append(line.name)
        if is_ours(line, self.cluster, self.instance_ids):
            self.unreadable[line.resource, line.day] += line.copies

    def _by_day(self, line: BillLine, kind: LineClass, usd: Decimal, count: int) -> None:
        if line.day is None:
            return
        key = line.resource, line.day
        if kind in {LineClass.INSTANCE, LineClass.RESOURCE}:
            _check_granularity(line)
            days = self.instances if kind is LineClass.INSTANCE else self.resources
            known = days.get(key, BilledDay())
            days[key] = BilledDay(
                usd=add(known.usd, usd),
                seconds=_plus_hours(known.seconds, line.usage_amount, count),
                pricings=known.pricings | {pricing(line)},
            )
        elif kind in REFUNDING and is_ours(line, self.cluster, self.instance_ids):
            self.credits[key] = add(self.credits.get(key, ZERO), usd)

    def _period(self, line: BillLine) -> None:
        if line.period is None or line.day is None:
            return
        known = self.periods.get(line.period, BillPeriod(line.period, 0))
        is_open = line.bill_type in {ANNIVERSARY, ""} and not line.invoiced
        self.periods[line.period] = BillPeriod(
            last_day=max(known.last_day, line.day),
            lines_without_invoice=known.lines_without_invoice + is_open,
        )


def tally(lines: Iterable[BillLine], cluster: str, instance_ids: Collection[str]) -> Tally:
    """Return all sums. Raises BillRefused for a bill by months."""
    adding = _Adding(cluster, instance_ids)
    for line in lines:
        adding.add(line)
    return Tally(
        classes={kind: adding.classes[kind] for kind in LineClass if kind in adding.classes},
        instances=adding.instances,
        resources=adding.resources,
        credits=adding.credits,
        periods=dict(sorted(adding.periods.items())),
        unreadable=dict(adding.unreadable),
        set_aside=tuple(sorted(adding.set_aside)),
        unreadable_tags=adding.unreadable_tags,
        tagged_lines=adding.tagged_lines,
        unused_unknown=adding.unused_unknown,
    )


def _plus_hours(seconds: Decimal | None, hours: Decimal | None, count: int) -> Decimal | None:
    if seconds is None or hours is None:
        return None
    return add(seconds, times(hours, SECONDS_PER_HOUR * count))


def _check_granularity(line: BillLine) -> None:
    if line.start is None or line.end is None or line.end - line.start <= LONGEST_USAGE:
        return
    raise BillRefused(
        f"{line.name} covers more than a day, from {line.start:%Y-%m-%d} to {line.end:%Y-%m-%d}",
        next_step="choose the time granularity HOURLY or DAILY for the export",
    )
