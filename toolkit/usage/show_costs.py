"""The cost of instances by jobs, as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from toolkit.accounting.charges import Component
from toolkit.accounting.export import UNKNOWN, cell, iso, money
from toolkit.accounting.terminal import COLUMNS, amount
from toolkit.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.usage.instance_costs import CostRow, InstanceCosts

NOBODY = "(cluster)"


def as_json(report: InstanceCosts) -> dict[str, Any]:
    """Return the report as JSON values; money is text."""
    return {
        "since": iso(report.window.since),
        "until": iso(report.window.until),
        "instances": report.instances,
        "by": [key.value for key in report.keys],
        "rows": [_fields(row, report) for row in report.rows],
        "usd": money(report.total),
        "attempts_without_dbindex": report.attempts_without_key,
    }


def _fields(row: CostRow, report: InstanceCosts) -> dict[str, Any]:
    keys = row.keys or [""] * len(report.keys)
    return {
        **{key.value: value or None for key, value in zip(report.keys, keys, strict=True)},
        "components": {
            item.value: _money(row, item)
            for item in Component
            if row.micro.get(item) or item in row.unknown
        },
        "usd": money(row.total),
        "has_unknown_cost": bool(row.unknown),
    }


def _money(row: CostRow, component: Component) -> str | None:
    known = row.micro.get(component, 0)
    return money(known) if known or component not in row.unknown else None


def as_csv(report: InstanceCosts) -> str:
    """Return a line for each component of each row.

    `usd` sums to the total.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*(key.value for key in report.keys), "component", "usd"])
    for row in report.rows:
        names = row.keys or [""] * len(report.keys)
        keys = [cell(key.value, name) for key, name in zip(report.keys, names, strict=True)]
        for component, text in _fields(row, report)["components"].items():
            writer.writerow([*keys, component, UNKNOWN if text is None else text])
    return out.getvalue()


def as_text(report: InstanceCosts) -> str:
    """Return the report for a terminal."""
    headers = ("/".join(report.keys), *(name for name, _ in COLUMNS), "USD")
    rows = [_cells(["/".join(row.keys) or NOBODY], [row], report) for row in report.rows]
    total = _cells(["total"], report.rows, report)
    lines = [table(headers, [*rows, total])]
    if report.attempts_without_key:
        lines.append(
            f"note: {report.attempts_without_key:,} attempts have no DBIndex: nothing is charged"
            " to them, and their time shows as idle"
        )
    return "\n".join(lines)


def _cells(label: list[str], rows: Sequence[CostRow], report: InstanceCosts) -> list[str]:
    columns = [components for _, components in COLUMNS]
    return [
        *label,
        *(_amount(rows, components, report) for components in columns),
        _amount(rows, tuple(Component), report),
    ]


def _amount(rows: Sequence[CostRow], components: Sequence[Component], report: InstanceCosts) -> str:
    micro = sum(row.micro.get(item, 0) for row in rows for item in components)
    has_unknown = any(row.unknown.intersection(components) for row in rows)
    return amount(micro, report.total, has_unknown=has_unknown) if micro or has_unknown else "-"
