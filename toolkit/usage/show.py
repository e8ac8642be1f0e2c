"""A usage report as text, JSON and CSV. Hours have three places, money six."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from toolkit.accounting.export import UNKNOWN, cell, iso, money
from toolkit.output import table

if TYPE_CHECKING:
    from toolkit.usage.report import Amount, UsageReport, UsageRow
    from toolkit.usage.store import Import, Manifest

_HOURS = ("node_hours", "cpu_hours", "gpu_hours")


def hours(seconds: int) -> str:
    """Return seconds as hours with three places, halves to the even one."""
    return str((Decimal(seconds) / 3600).quantize(Decimal("0.001")))


def as_json(report: UsageReport) -> dict[str, Any]:
    """Return the report as JSON values.

    Amounts are text, so they are never floats."""
    return {
        "since": iso(report.since),
        "until": iso(report.until),
        "known_until": iso(report.known_until),
        "by": [key.value for key in report.keys],
        "rows": [_fields(row, report) for row in report.rows],
        "total": _fields(report.total, report),
    }


def as_csv(report: UsageReport) -> str:
    """Return a line for each row.

    An amount of which nothing is known is `unknown`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("attempts", "running", *_HOURS, "usd", "unknown_cost_attempts")
    writer.writerow([*(key.value for key in report.keys), *names])
    for row in report.rows:
        fields = _fields(row, report)
        keys = [cell(key.value, fields[key.value] or "") for key in report.keys]
        values = [UNKNOWN if fields[name] is None else fields[name] for name in names]
        writer.writerow([*keys, *values])
    return out.getvalue()


def _fields(row: UsageRow, report: UsageReport) -> dict[str, Any]:
    amounts = (row.node_seconds, row.cpu_seconds, row.gpu_seconds)
    return {
        **{key.value: value or None for key, value in zip(report.keys, row.keys, strict=False)},
        "attempts": row.attempts,
        "running": row.running,
        **{
            name: hours(amount.known) if _is_known(amount, row) else None
            for name, amount in zip(_HOURS, amounts, strict=True)
        },
        "usd": money(row.micro.known) if _is_known(row.micro, row) else None,
        "unknown_cost_attempts": row.micro.unknown_attempts,
        "unknown_gpu_attempts": row.gpu_seconds.unknown_attempts,
        "unknown_node_attempts": row.node_seconds.unknown_attempts,
    }


def _is_known(amount: Amount, row: UsageRow) -> bool:
    return amount.unknown_attempts < row.attempts or not row.attempts


def as_text(report: UsageReport) -> str:
    """Return the table for a terminal; `?` is an unknown part."""
    if not report.rows:
        return "no attempts in this time"
    headers = [*(key.value for key in report.keys), "attempts"]
    headers += ["node-hours", "CPU-hours", "GPU-hours", *(["USD"] if report.priced else [])]
    label = ["total", *[""] * (len(report.keys) - 1)]
    rows = [
        [*(key or "(unknown)" for key in row.keys), *_cells(row, report)] for row in report.rows
    ]
    lines = [
        f"Usage from {iso(report.since)} to {iso(report.until)}",
        "",
        table(headers, [*rows, [*label, *_cells(report.total, report)]]),
    ]
    total = report.total
    if total.running:
        lines.append(
            f"note: {total.running} attempts have no end; "
            f"they count up to {iso(report.known_until)}, the last second in the store"
        )
    if report.priced and total.micro.unknown_attempts:
        lines.append(
            f"note: the cost of {total.micro.unknown_attempts} attempts is unknown, and in no sum: "
            "their partition or node type has no rate"
        )
    return "\n".join(lines)


def _cells(row: UsageRow, report: UsageReport) -> list[str]:
    def text(amount: Amount, shown: str) -> str:
        if not amount.unknown_attempts:
            return shown
        return f"{shown}+?" if amount.known else "?"

    amounts = (row.node_seconds, row.cpu_seconds, row.gpu_seconds)
    cells = [str(row.attempts), *(text(amount, hours(amount.known)) for amount in amounts)]
    return [*cells, text(row.micro, money(row.micro.known))] if report.priced else cells


def status_json(folder: str, manifest: Manifest) -> dict[str, Any]:
    """Return the store's content as JSON values."""
    return {
        "store": folder,
        "attempts": manifest.attempts,
        "days": len(manifest.days),
        "first_day": min(manifest.days, default=None),
        "last_day": max(manifest.days, default=None),
        "known_until": iso(manifest.known_until or None),
        "imports": [import_json(record) for record in manifest.imports],
    }


def import_json(record: Import) -> dict[str, Any]:
    """Return one import as JSON values."""
    return {
        "number": record.number,
        "file": record.name,
        "sha256": record.sha256,
        "complete": record.complete,
        "lines": record.last_line,
        "attempts": record.attempts,
        "steps": record.steps,
        "bad_lines": record.bad_lines,
    }


def status_text(folder: str, manifest: Manifest) -> str:
    """Return the store's content for a terminal."""
    if not manifest.imports:
        return f"store {folder}: empty\nnext: toolkit usage import FILE"
    first, last = min(manifest.days, default="-"), max(manifest.days, default="-")
    headers = ("import", "file", "attempts", "steps", "bad lines", "state")
    rows = [
        (item.number, item.name, item.attempts, item.steps, item.bad_lines,
         "complete" if item.complete else "interrupted: import the file again")
        for item in manifest.imports
    ]  # fmt: skip
    days = len(manifest.days)
    return (
        f"store {folder}: {manifest.attempts:,} attempts, submitted on {days:,} days, "
        f"{first} to {last}\n\n{table(headers, rows)}"
    )
