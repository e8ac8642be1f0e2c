"""Charges of instances by SQL, equal to those of the exact engine.

`toolkit.accounting` is the exact engine: it divides one instance after another, in fractions. Here
DuckDB divides all of them at once, in whole numbers. A few instances were stopped, need more than
127 bits, or have jobs that want more than the whole of it. The exact engine divides these. A
property test holds both to each other, charge by charge.

Racks, storage and what was paid without use are no instances, so `toolkit.accounting` alone has
them. So it has the shares of costs that all jobs pay.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.build import Rules, paid_in_advance
from toolkit.accounting.charges import Charge, Component
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.usage import engine_input, exact_division, rare_attempts

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
    cost_policy: CostPolicy = field(default_factory=CostPolicy)


def charge(database: Database, facts: Facts, window: Window, policy: Policy) -> None:
    """Make the table `charges` of the attempts in the table `attempts`.

    Its rows name an instance by its number, `i`, which the table `lives` has.
    """
    match(database, facts, window)
    divide(database, facts, window, policy)


def match(database: Database, facts: Facts, window: Window) -> None:
    """Find the bill, the usages and the waits of each instance."""
    numbered = engine_input.numbered(facts.instances)
    engine_input.make_instances(database, numbered, facts.shapes, facts.book.history)
    engine_input.make_attempts(database, engine_input.node_numbers(numbered))
    rare_attempts.apply_resizes(database)
    database.run_file("lives.sql", now=facts.now)
    database.run_file("matches.sql", until=window.until)
    if rare_attempts.end_runaways(database, window.until):
        database.run_file("matches.sql")
    database.run("DROP TABLE latest")
    database.run("DROP TABLE attempts_of_nodes")


def divide(database: Database, facts: Facts, window: Window, policy: Policy) -> None:
    """Divide the cost of each matched instance within a window."""
    billed = _billed_lives(database, engine_input.numbered(facts.instances))
    book, _ = paid_in_advance(facts.book, billed, policy, window)
    engine_input.make_spans(database, billed, book, window, policy)
    engine_input.make_payers(database, facts.cost_policy)
    database.run_file(
        "lines.sql",
        since=window.since,
        until=window.until,
        minimum_seconds=policy.minimum_seconds,
    )
    database.run_file("charges.sql", refund_within=policy.refund_within)
    rules = Rules(policy, facts.cost_policy)
    _divide_hard(database, billed, book, window, rules)


def _billed_lives(database: Database, numbered: Sequence[Instance]) -> list[Instance]:
    """Return the instances with the start and the end of their bills."""
    lives = database.rows(
        """SELECT ended, CASE WHEN running IS NULL THEN NULL ELSE billed_from END
        FROM lives ORDER BY i"""
    )
    return [
        item
        if (item.ended, item.running) == (ended, running)
        else replace(item, ended=ended, running=running)
        for item, (ended, running) in zip(numbered, lives, strict=True)
    ]


def _divide_hard(
    database: Database, billed: Sequence[Instance], book: PriceBook, window: Window, rules: Rules
) -> None:
    """Let the exact engine divide the instances that SQL can't."""
    usages, waits = exact_division.uses(database)
    divisions = [
        exact_division.Division(
            number, billed[number], usages.get(number, []), waits.get(number, []), book, rules
        )
        for (number,) in database.rows("SELECT DISTINCT i FROM hard ORDER BY i")
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
