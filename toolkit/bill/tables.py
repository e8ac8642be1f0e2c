"""A reconciliation for people and programs: a table, CSV, JSON."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from toolkit.accounting.bill_status import usd_text
from toolkit.accounting.export import UNKNOWN, safe_cell
from toolkit.bill.amounts import total
from toolkit.bill.classes import LineClass
from toolkit.bill.record import BillEntry, CorrectionEntry, DayEntry
from toolkit.output import plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from toolkit.bill.match import MatchLine, MatchSum
    from toolkit.bill.reconcile import Reconciliation
    from toolkit.bill.record import Entry
    from toolkit.bill.tally import ClassSum

_CSV_FIELDS = (
    "class",
    "day",
    "instance",
    "node",
    "estimated",
    "billed",
    "gap",
    "credits",
    "estimated_seconds",
    "billed_seconds",
    "pricing",
    "cause",
)
_NAMES = ("instance", "node")
"""Cells with outside text. A negative amount is no formula, and must stay a number."""

NOT_COMPARED = "instances, not compared"


def as_text(result: Reconciliation, *, all_lines: bool) -> str:
    """Return the tables of lines, days and classes, and the notes."""
    total_sum = result.match.total
    chosen = [line for line in result.match.lines if all_lines or not line.within_tolerance]
    above = [line for line in result.match.lines if not line.within_tolerance]
    gap = _signed(total_sum.gap)
    amounts = f"billed {_usd(total_sum.billed)}, estimated {_usd(total_sum.estimated)}"
    tolerance = f"tolerance of {usd_text(result.match.tolerance)} USD"
    parts = [
        f"Bill of cluster {result.cluster}, {len(result.match.days)} days compared",
        "",
        *_line_table(chosen),
        _day_table(result),
        "",
        _class_table(result),
        "",
        f"gap: {gap} USD, {amounts}",
        f"lines above the {tolerance}: {len(above)} of {total_sum.lines}",
        *(plain(f"note: {note}") for note in result.notes),
    ]
    return "\n".join(parts)


def as_csv(result: Reconciliation) -> str:
    """Return a row for each line, then one for each other class.

    The effective costs in `billed` add up to the whole bill's, as long as none is unknown.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=_CSV_FIELDS, lineterminator="\n", restval="")
    writer.writeheader()
    for row in _csv_rows(result):
        names = {name: safe_cell(row[name]) for name in _NAMES if name in row}
        writer.writerow(row | names)
    return out.getvalue()


def as_json(result: Reconciliation, *, dry_run: bool) -> dict[str, Any]:
    """Return everything as JSON values. Money is text in dollars."""
    return {
        "cluster": result.cluster,
        "currency": "USD",
        "bill": result.bill,
        "files": [
            {"name": file.name, "sha256": file.sha256, "bytes": file.size} for file in result.files
        ],
        "months": [
            {"month": f"{item.month:%Y-%m}", "closed": item.closed, "days": len(item.days)}
            for item in result.coverage
        ],
        "tolerance": usd_text(result.match.tolerance),
        "within_tolerance": result.is_within_tolerance,
        "total": _sum_json(result.match.total),
        "days": [
            {"day": str(day), "status": result.statuses[day].value, **_sum_json(day_sum)}
            for day, day_sum in result.match.days.items()
        ],
        "lines": [_line_json(line) for line in result.match.lines],
        "resources": [
            {"day": str(day), "resource": resource, "billed": usd_text(billed.usd)}
            for (resource, day), billed in sorted(
                result.tally.resources.items(), key=lambda item: (item[0][1], item[0][0])
            )
        ],
        "classes": [_class_json(kind, item) for kind, item in result.tally.classes.items()],
        "set_aside": list(result.tally.set_aside),
        "dry_run": dry_run,
        "recorded": [entry_json(entry) for entry in result.entries],
        "notes": list(result.notes),
    }


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return what the record gets, for `--json`."""
    match entry:
        case BillEntry():
            return {"entry": "bill", "bill": entry.bill}
        case DayEntry():
            billed = usd_text(total(entry.billed.values()))
            day = str(entry.day)
            return {"entry": "day", "day": day, "status": entry.status.value, "billed": billed}
        case CorrectionEntry():
            return {
                "entry": "correction",
                "day": str(entry.day),
                "instance": entry.instance,
                "old": usd_text(entry.old),
                "new": usd_text(entry.new),
                "difference": usd_text(entry.difference),
            }


def record_text(entries: Sequence[Entry], *, dry_run: bool) -> str:
    """Return what was, or would be, written to the record."""
    days = [entry for entry in entries if isinstance(entry, DayEntry)]
    corrections = [entry for entry in entries if isinstance(entry, CorrectionEntry)]
    if not days and not corrections:
        return "record: nothing new"
    counts: dict[str, int] = {}
    for entry in days:
        counts[entry.status.value] = counts.get(entry.status.value, 0) + 1
    words = [f"{count} days {status}" for status, count in counts.items()]
    if corrections:
        words.append(f"{len(corrections)} corrections of final days")
    lines = [f"record: {'would add ' if dry_run else ''}{', '.join(words)}"]
    lines += [
        plain(
            f"correction of {entry.day}: {entry.instance} from {_usd(entry.old)} to"
            f" {_usd(entry.new)} ({_signed(entry.difference)} USD)"
        )
        for entry in corrections
    ]
    return "\n".join(lines)


def _line_table(lines: Sequence[MatchLine]) -> list[str]:
    if not lines:
        return []
    headers = ["DAY", "INSTANCE", "NODE", "ESTIMATED", "BILLED", "CREDITS", "GAP", "CAUSE"]
    rows = [
        [
            line.day,
            line.instance,
            line.node or "-",
            _usd(line.estimated),
            _usd(line.billed),
            _usd(line.credits) if line.credits else "-",
            _signed(line.gap),
            line.cause.value,
        ]
        for line in lines
    ]
    return [table(headers, rows), ""]


def _day_table(result: Reconciliation) -> str:
    headers = ["DAY", "STATUS", "LINES", "ESTIMATED", "BILLED", "GAP"]
    rows = [
        [day, result.statuses[day].value, *_sum_cells(day_sum)]
        for day, day_sum in result.match.days.items()
    ]
    rows.append(["total", "", *_sum_cells(result.match.total)])
    return table(headers, rows)


def _sum_cells(item: MatchSum) -> list[str]:
    mark = "+?" if item.unknown else ""
    amounts = _usd(item.estimated), _usd(item.billed), _signed(item.gap)
    return [str(item.lines), *(f"{amount}{mark}" for amount in amounts)]


def _class_table(result: Reconciliation) -> str:
    headers = ["CLASS", "LINES", "UNBLENDED", "EFFECTIVE", "MEANING"]
    classes = result.tally.classes
    rows = [
        [kind.value, item.lines, *map(_usd, _class_amounts(kind, item)), kind.about]
        for kind, item in classes.items()
    ]
    unblended = total(item.unblended for item in classes.values())
    effective = total(item.effective for item in classes.values())
    lines = sum(item.lines for item in classes.values())
    rows.append(["all", lines, _usd(unblended), _usd(effective), ""])
    return table(headers, rows)


def _csv_rows(result: Reconciliation) -> Iterator[dict[str, str]]:
    for line in result.match.lines:
        yield {
            "class": LineClass.INSTANCE.value,
            "day": str(line.day),
            "instance": line.instance,
            "node": line.node,
            "estimated": _text(line.estimated),
            "billed": _text(line.billed),
            "gap": _text(line.gap),
            "credits": _text(line.credits),
            "estimated_seconds": str(line.estimated_seconds),
            "billed_seconds": UNKNOWN
            if line.billed_seconds is None
            else f"{line.billed_seconds:f}",
            "pricing": " and ".join(line.pricings),
            "cause": line.cause.value,
        }
    for day, usd in result.match.days_not_compared.items():
        yield {"class": NOT_COMPARED, "day": str(day), "billed": usd_text(usd)}
    for kind, item in result.tally.classes.items():
        if kind is not LineClass.INSTANCE:
            yield {"class": kind.value, "billed": _text(_class_amounts(kind, item)[1])}


def _class_amounts(kind: LineClass, item: ClassSum) -> tuple[Decimal | None, Decimal | None]:
    """Return the unblended and effective cost; None if it is unknown."""
    if kind is LineClass.SET_ASIDE:
        return None, None
    return item.unblended, item.effective


def _class_json(kind: LineClass, item: ClassSum) -> dict[str, Any]:
    unblended, effective = _class_amounts(kind, item)
    return {
        "class": kind.value,
        "lines": item.lines,
        "unblended": None if unblended is None else usd_text(unblended),
        "effective": None if effective is None else usd_text(effective),
    }


def _sum_json(item: MatchSum) -> dict[str, Any]:
    return {
        "lines": item.lines,
        "estimated": usd_text(item.estimated),
        "billed": usd_text(item.billed),
        "gap": usd_text(item.gap),
        "credits": usd_text(item.credits),
        "unknown": item.unknown,
    }


def _line_json(line: MatchLine) -> dict[str, Any]:
    return {
        "day": str(line.day),
        "instance": line.instance,
        "node": line.node or None,
        "estimated": None if line.estimated is None else usd_text(line.estimated),
        "billed": None if line.billed is None else usd_text(line.billed),
        "gap": None if line.gap is None else usd_text(line.gap),
        "credits": usd_text(line.credits),
        "estimated_seconds": line.estimated_seconds,
        "billed_seconds": None if line.billed_seconds is None else f"{line.billed_seconds:f}",
        "pricing": list(line.pricings),
        "cause": line.cause.value or None,
        "within_tolerance": line.within_tolerance,
    }


def _text(amount: Decimal | None) -> str:
    return UNKNOWN if amount is None else usd_text(amount)


def _usd(amount: Decimal | None) -> str:
    """Return an amount for the table, which has six places."""
    return "?" if amount is None else f"{amount:,.6f}"


def _signed(amount: Decimal | None) -> str:
    return "?" if amount is None else f"{amount:+,.6f}"
