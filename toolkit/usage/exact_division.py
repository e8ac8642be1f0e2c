"""Instances that SQL can't divide, divided by the exact engine one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import Window, allocate, billed_spans
from toolkit.accounting.attempt_instances import Usage, Wait
from toolkit.accounting.charges import Component
from toolkit.accounting.days import DAY
from toolkit.accounting.money import apportion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.accounting.build import Rules
    from toolkit.accounting.charges import Charge
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook
    from toolkit.usage.database import Database


_KEY = (("i", "INTEGER"), ("component", "component"), ("attempt", "UBIGINT"))
_CHARGES = (
    *_KEY,
    ("micro", "BIGINT"),
    ("above", "HUGEINT"),
    ("below", "HUGEINT"),
    ("known", "BOOLEAN"),
    ("first_day", "BIGINT"),
    ("last_day", "BIGINT"),
)
_DAYS = (
    *_KEY,
    ("day", "BIGINT"),
    ("micro", "BIGINT"),
    ("seconds", "DOUBLE"),
    ("known", "BOOLEAN"),
)


@dataclass(frozen=True, slots=True)
class Division:
    """An instance with what its cost is divided by."""

    number: int
    instance: Instance  # with the start and the end of its bill
    usages: Sequence[Usage]
    waits: Sequence[Wait]
    book: PriceBook
    rules: Rules

    def charges(self, window: Window) -> tuple[Charge, ...]:
        """Return the exact engine's charges."""
        cost = allocate(
            self.instance,
            self.usages,
            self.book,
            window,
            self.rules.billing,
            waits=self.waits,
            cost_policy=self.rules.payers,
        )
        return cost.charges if cost else ()

    def days(self, window: Window) -> list[Window]:
        """Return the days in which it is billed."""
        spans = list(billed_spans(self.instance, window.until, self.rules.billing))
        end = min(max(span.until for span in spans), window.until)
        start = max(spans[0].start, window.since)
        return [
            Window(max(day * DAY, start), min((day + 1) * DAY, end))
            for day in range(start // DAY, (end - 1) // DAY + 1)
        ]


def uses(database: Database) -> tuple[dict[int, list[Usage]], dict[int, list[Wait]]]:
    """Return the usages and waits of the hard instances, by number."""
    usages: dict[int, list[Usage]] = defaultdict(list)
    waits: dict[int, list[Wait]] = defaultdict(list)
    for number, attempt, start, end, above, below, lost_from in database.rows(
        """SELECT i, attempt, u_start, u_end, above, below, lost_from
        FROM usages SEMI JOIN hard USING (i)"""
    ):
        usages[number].append(Usage(attempt, start, end, Fraction(above, below), lost_from))
    for number, attempt, start, end in database.rows(
        "SELECT i, attempt, w_start, w_end FROM waits SEMI JOIN hard USING (i)"
    ):
        waits[number].append(Wait(attempt, start, end))
    return usages, waits


def write(database: Database, divisions: Sequence[Division], window: Window) -> None:
    """Add the charges to the table `charges`, and make the table `hard_days`."""
    rows: list[Sequence[object]] = []
    days: list[Sequence[object]] = []
    for division in divisions:
        charges = division.charges(window)
        for charge in charges:
            seconds = (charge.seconds.numerator, charge.seconds.denominator)
            name = charge.component.value
            key = (division.number, name, charge.attempt)
            rows.append((*key, charge.micro, *seconds, charge.price_known, 0, 0))
        days += [(division.number, *row) for row in _days(division, charges, window)]
    database.table("hard_charges", _CHARGES, rows)
    database.run("INSERT INTO charges SELECT * FROM hard_charges")
    database.table("hard_days", _DAYS, days)


def _days(
    division: Division, charges: Sequence[Charge], window: Window
) -> Iterator[tuple[object, ...]]:
    """Yield each charge's days: component, attempt, day, micro-dollars, seconds, known.

    A day's part is by its seconds. Refunds are left to days.sql.
    """
    seconds: dict[tuple[object, ...], dict[int, Fraction]] = defaultdict(dict)
    for day in division.days(window):
        for part in division.charges(day):
            seconds[_key(part)][day.since // DAY] = part.seconds
    for charge in charges:
        if charge.component is Component.REFUND:
            continue
        by_day = seconds[_key(charge)]
        amounts = apportion(charge.micro, list(by_day.values()))
        for (number, part_seconds), micro in zip(by_day.items(), amounts, strict=True):
            values = (number, micro, float(part_seconds), charge.price_known)
            yield charge.component.value, charge.attempt, *values


def _key(charge: Charge) -> tuple[object, ...]:
    return charge.component, charge.attempt, charge.price_known
