"""The savings ledger for people and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.accounting.export import iso, money
from toolkit.accounting.phrases import span
from toolkit.finance import words
from toolkit.finance.savings import Measure
from toolkit.output import counted, table

if TYPE_CHECKING:
    from toolkit.accounting.report import Report
    from toolkit.finance.savings import Ledger, Saving

_HEADERS = ("month", "what was done", "how much", "saved", "it cost", "net")


def as_json(report: Report, ledger: Ledger) -> dict[str, Any]:
    """Return the ledger as JSON values; money is text in dollars."""
    return {
        "cluster": report.cluster,
        "since": iso(report.window.since),
        "until": iso(report.window.until),
        "currency": "USD",
        "savings": [_json(line) for line in ledger.lines],
        "compared_with": {measure.value: measure.against for measure in Measure},
        "without_on_demand_price": list(ledger.unpriced),
        "jobs_without_known_saving": {
            measure.value: jobs for measure, jobs in ledger.unknown.items()
        },
    }


def as_text(report: Report, ledger: Ledger) -> str:
    """Return the ledger as a table, with the other ways."""
    title = f"Savings of cluster {report.cluster}, "
    title += span(report.window.since, report.window.until)
    if not ledger.lines:
        return "\n".join([title, words.NO_DATA, *unknown_lines(ledger)])
    rows = [
        (
            line.month,
            line.measure.value,
            f"{words.rounded(line.quantity, 1):,} {line.measure.unit}",
            words.dollars(line.saved),
            words.dollars(line.cost),
            words.dollars(line.net),
        )
        for line in ledger.lines
    ]
    notes = [f"{measure.value}: against {measure.against}" for measure in Measure]
    if ledger.unpriced:
        notes.append(f"in no line, without an on-demand price: {', '.join(ledger.unpriced[:5])}")
    notes += unknown_lines(ledger)
    return "\n".join([title, table(_HEADERS, rows), *notes])


def unknown_lines(ledger: Ledger) -> list[str]:
    """Return what says how many jobs are in no line."""
    return [
        f"{measure.value}: {counted(jobs, 'job')} in no line: on another instance type, or without"
        " a known price or speed"
        for measure, jobs in ledger.unknown.items()
    ]


def _json(line: Saving) -> dict[str, Any]:
    return {
        "month": line.month,
        "measure": line.measure.value,
        "quantity": str(words.rounded(line.quantity, 3)),
        "unit": line.measure.unit,
        "saved": money(line.saved),
        "cost": money(line.cost),
        "net": money(line.net),
    }
