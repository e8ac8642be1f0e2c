"""Instances that SQL can't divide, divided by the exact engine one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import allocate
from toolkit.accounting.attempt_instances import Usage, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.build import Rules
    from toolkit.accounting.charges import Charge
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook
    from toolkit.usage.database import Database


_CHARGES = (
    ("i", "INTEGER"),
    ("component", "component"),
    ("attempt", "UBIGINT"),
    ("micro", "BIGINT"),
    ("above", "HUGEINT"),
    ("below", "HUGEINT"),
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
    """Add the charges to the table `charges`."""
    rows: list[Sequence[object]] = []
    for division in divisions:
        for charge in division.charges(window):
            seconds = (charge.seconds.numerator, charge.seconds.denominator)
            key = (division.number, charge.component.value, charge.attempt)
            rows.append((*key, charge.micro, *seconds, charge.price_known))
    database.table("hard_charges", _CHARGES, rows)
    database.run("INSERT INTO charges SELECT * FROM hard_charges")
