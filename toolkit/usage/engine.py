"""Charges of instances by SQL, equal to those of the exact engine.

`toolkit.accounting` is the exact engine: it divides one instance after another, in fractions. Here
DuckDB divides all of them at once, in whole numbers. A few instances need more than 127 bits, or
have jobs that want more than the whole of it. The exact engine divides these. A property test holds
both to each other, charge by charge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Charge, Component
from toolkit.usage import engine_input, exact_division

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.accounting.allocation import Policy, Window
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, Shape
    from toolkit.usage.database import Database


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that charges are made of, beside the attempts."""

    instances: Sequence[Instance]
    shapes: Mapping[str, Shape]  # by instance id
    book: PriceBook
    now: int


def charge(database: Database, facts: Facts, window: Window, policy: Policy) -> None:
    """Make the table `charges` of the attempts in the table `attempts`.

    Its rows name an instance by its number, `i`, which the table `lives` has.
    """
    match(database, facts)
    divide(database, facts, window, policy)


def match(database: Database, facts: Facts) -> None:
    """Find the bill, the usages and the waits of each instance."""
    numbered = engine_input.numbered(facts.instances)
    engine_input.make_instances(database, numbered, facts.shapes)
    engine_input.make_attempts(database)
    database.run_file("lives.sql", now=facts.now)
    database.run_file("matches.sql")


def divide(database: Database, facts: Facts, window: Window, policy: Policy) -> None:
    """Divide the cost of each matched instance within a window."""
    numbered = engine_input.numbered(facts.instances)
    engine_input.make_spans(database, numbered, facts.book, max(facts.now, window.until))
    database.run_file(
        "lines.sql",
        since=window.since,
        until=window.until,
        minimum_seconds=policy.minimum_seconds,
    )
    database.run_file("charges.sql", refund_within=policy.refund_within)
    _divide_hard(database, numbered, facts, window, policy)


def _divide_hard(
    database: Database, numbered: Sequence[Instance], facts: Facts, window: Window, policy: Policy
) -> None:
    """Let the exact engine divide the instances that SQL can't."""
    usages, waits = exact_division.uses(database)
    lives = database.rows(
        """SELECT i, ended, CASE WHEN running IS NULL THEN NULL ELSE billed_from END
        FROM lives SEMI JOIN hard USING (i) ORDER BY i"""
    )
    divisions = [
        exact_division.Division(
            number,
            replace(numbered[number], ended=ended, running=running),
            usages.get(number, []),
            waits.get(number, []),
            facts.book,
            policy,
        )
        for number, ended, running in lives
    ]
    exact_division.write(database, divisions, window)


def charges(database: Database) -> list[Charge]:
    """Return the charges as the exact engine's values."""
    return [
        Charge(Component(component), instance, attempt, micro, Fraction(above, below), known)
        for instance, component, attempt, micro, above, below, known in database.rows(
            """SELECT instance_id, component, attempt, micro, above, below, known
            FROM charges JOIN lives USING (i)"""
        )
    ]
