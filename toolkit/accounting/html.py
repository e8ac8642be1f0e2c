"""The report as one HTML file, without scripts, fonts or pictures from elsewhere.

Its only picture is inline SVG.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from toolkit import assets
from toolkit.accounting.bill_status import correction_line, status_line
from toolkit.accounting.closed_part import closed_lines
from toolkit.accounting.export import iso
from toolkit.accounting.period_part import period_lines
from toolkit.accounting.phrases import (
    day,
    left_out,
    payers_text,
    price_sources,
    price_text,
    prices_text,
    racks_text,
    sources_text,
    span,
    total_name,
)
from toolkit.accounting.report import NO_JOB_LABEL
from toolkit.accounting.terminal import COLUMNS, amount, duration, end_text, money, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.report import Group, Key, Report

_BAR = 1000
"""The width of the bar in its own units; a part has at least one of them."""


def render(report: Report, keys: Sequence[Key]) -> str:
    """Return the page; every name in it is escaped."""
    environment = Environment(
        loader=FileSystemLoader(assets.directory("templates") / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2").render(context(report, keys))


def context(report: Report, keys: Sequence[Key]) -> dict[str, Any]:
    """Return the template's values: text, but for the bar's numbers."""
    return {
        "cluster": report.cluster,
        "span": span(report.window.since, report.window.until),
        "made_at": iso(report.made_at),
        "total": amount(report.net, report.gross, has_unknown=bool(report.unknown_costs)),
        "gross": money(report.gross, report.gross),
        "refund": money(report.refund, report.gross) if report.refund else "",
        "keys": [key.value for key in keys],
        "columns": [name for name, _ in COLUMNS],
        "groups": [_group_row(report, group) for group in report.groups(keys)],
        "components": _components(report),
        "instances": [_instance_row(report, cost) for cost in report.costs],
        "sources": price_sources(report),
        "payers": payers_text(report),
        "total_name": total_name(report),
        "left_out": left_out(report),
        "racks": racks_text(report),
        "bill": _bill_lines(report),
        "notes": list(report.notes),
    }


def _bill_lines(report: Report) -> list[str]:
    """Return the lines on closed days, and on days against AWS's bill."""
    closed = [*closed_lines(report.closed), *period_lines(report.period, report.net)]
    if report.bill_status is None:
        return closed
    return [
        *closed,
        status_line(report.bill_status),
        *map(correction_line, report.bill_status.corrections),
    ]


def _group_row(report: Report, group: Group) -> dict[str, Any]:
    blanks = [""] * (len(group.key_values) - 1)
    return {
        "key_values": [*group.labels] if group.has_jobs else [NO_JOB_LABEL, *blanks],
        "has_jobs": group.has_jobs,
        "jobs": len(group.jobs) if group.has_jobs else "",
        "attempts": len(group.attempts) if group.has_jobs else "",
        "amounts": [
            amount(group.sum_of(*parts), report.gross, has_unknown=group.has_unknown(*parts))
            for _, parts in COLUMNS
        ],
        "total": amount(group.total, report.gross, has_unknown=group.has_unknown()),
    }


def _components(report: Report) -> list[dict[str, Any]]:
    """Return the lines, each with its place on the bar.

    A refund has no width there.
    """
    lines, position = [], 0
    for component, micro in report.components().items():
        width = max(_BAR * micro // report.gross, 1) if micro > 0 and report.gross else 0
        lines.append(
            {
                "name": component.value,
                "slug": component.value.replace(" ", "-"),
                "amount": amount(
                    micro, report.gross, has_unknown=component in report.unknown_components
                ),
                "percent": percent(micro, report.gross) if micro else "",
                "about": component.about,
                "sources": prices_text(report.component_prices.get(component)),
                "x": position,
                "width": width,
            }
        )
        position += width
    return lines


def _instance_row(report: Report, cost: InstanceCost) -> dict[str, Any]:
    instance = report.instances[cost.instance_id]
    prices = cost.charge_prices
    return {
        "id": cost.instance_id,
        "node": instance.node,
        "type": instance.instance_type,
        "zone": instance.zone,
        "lifecycle": instance.lifecycle,
        "launched": iso(instance.launched),
        "duration": duration(cost.seconds),
        "price": price_text(cost),
        "source": sources_text(prices.sources) if prices else "",
        "as_of": day(prices.as_of) if prices else "",
        "ended": end_text(instance),
        "total": amount(cost.net, report.gross, has_unknown=cost.has_unknown),
    }
