"""The accounting journal of a period: debits and credits that balance to the cent. Pure."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.accounting.export import safe_cell
from toolkit.statements.cents import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.statements.model import PeriodStatements
    from toolkit.statements.settings import StatementSettings

FIELDS: Final = (
    "period",
    "date",
    "entry",
    "ledger_account",
    "account",
    "debit",
    "credit",
    "currency",
    "text",
)


@dataclass(frozen=True, slots=True)
class Posting:
    """A line of the accounting journal; of debit and credit one is zero."""

    entry: int
    ledger_account: str
    account: str
    debit: int
    credit: int
    text: str


def postings(made: PeriodStatements, settings: StatementSettings) -> Iterator[Posting]:
    """Yield the postings: an entry for each account, one for the cluster."""
    period = made.issue.period
    number = 0
    for item in made.charged:
        if not (item.due or item.reduction or item.list_price):
            continue
        number += 1
        text = f"{made.issue.cluster} {period}"
        yield from _debit(number, item.cost_centre, item.account, item.due, f"{text}, due")
        yield from _debit(
            number, settings.subsidy, item.account, item.reduction, f"{text}, discount and subsidy"
        )
        yield from _debit(
            number, settings.recovery, item.account, -item.list_price, f"{text}, list price"
        )
    if made.cluster:
        text = f"{made.issue.cluster} {period}, caused by no account"
        yield from _debit(number + 1, settings.overhead, "", made.cluster, text)
        yield from _debit(number + 1, settings.recovery, "", -made.cluster, text)


def _debit(entry: int, ledger: str, account: str, amount: int, text: str) -> Iterator[Posting]:
    """Yield the posting of an amount; a negative one is a credit."""
    if amount:
        yield Posting(entry, ledger, account, max(amount, 0), max(-amount, 0), text)


def as_csv(made: PeriodStatements, settings: StatementSettings) -> str:
    """Return the accounting journal as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for item in postings(made, settings):
        debit = plain_text(item.debit) if item.debit else ""
        credit = plain_text(item.credit) if item.credit else ""
        writer.writerow(
            (
                made.issue.period, made.issue.last, item.entry, safe_cell(item.ledger_account),
                safe_cell(item.account), debit, credit, "USD", safe_cell(item.text),
            )
        )  # fmt: skip
    return out.getvalue()
