"""Notes of a reconciliation: what is doubtful, what was left out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting.bill_status import usd_text
from toolkit.bill.amounts import total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date

    from toolkit.bill.match import Match
    from toolkit.bill.periods import Coverage
    from toolkit.bill.tally import Tally

_FIRST = 3


def notes(
    bill: Tally, covered: Sequence[Coverage], result: Match, *, replaced: Sequence[date]
) -> tuple[str, ...]:
    """Return the notes, each a sentence."""
    return (
        *_period_notes(bill, covered),
        *_day_notes(result),
        *_line_notes(bill),
        *(
            f"a later bill of {month:%Y-%m} was read before: the record of its days stays"
            for month in replaced
        ),
    )


def _period_notes(bill: Tally, covered: Sequence[Coverage]) -> Iterator[str]:
    for item in covered:
        if item.closed:
            continue
        count = bill.periods[item.month].lines_without_invoice
        reason = f"{count} lines have no invoice yet" if count else "the month is not over"
        if not item.days:
            yield f"{item.month:%Y-%m} is open, {reason}: it covers no whole day yet"
            continue
        last = f"the days to {item.days[-1]} are covered"
        yield f"{item.month:%Y-%m} is open, {reason}: {last}"


def _day_notes(result: Match) -> Iterator[str]:
    for day in result.wide_days:
        gap = usd_text(result.days[day].gap)
        yield f"{day}: each line is within tolerance, and their sum is not: {gap} USD"
    if result.days_not_compared:
        usd = usd_text(total(result.days_not_compared.values()))
        days = _first_few([str(day) for day in result.days_not_compared])
        yield (
            f"{usd} USD of our instances are on days that the bill or the report does not"
            f" cover: {days}"
        )


def _line_notes(bill: Tally) -> Iterator[str]:
    if bill.set_aside:
        yield f"{_first_few(bill.set_aside)}: cost or time can't be read, set aside, cost unknown"
    if any(day is None for _, day in bill.unreadable):
        yield "a line of ours has no readable day: no day is recorded"
    if not bill.tagged_lines:
        yield (
            "no line has the tag toolkit:cluster: activate it as a cost allocation tag, or an"
            " instance that the ledger lacks can't be found"
        )
    if bill.unreadable_tags:
        yield f"the tags of {bill.unreadable_tags} lines can't be read"
    if bill.unused_unknown:
        yield (
            f"the export lacks the unused part of {bill.unused_unknown} fees: it is not in the"
            " effective cost of commitments"
        )


def _first_few(names: Sequence[str]) -> str:
    text = ", ".join(names[:_FIRST])
    return text if len(names) <= _FIRST else f"{text} and {len(names) - _FIRST} more"
