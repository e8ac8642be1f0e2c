"""The report as one HTML file that a manager reads and prints.

It has no scripts, fonts or pictures from elsewhere; its plots are inline SVG. Lists are the
dearest ones: every charge and instance is in the CSV and the JSON.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from toolkit import assets
from toolkit.accounting.bill_status import correction_line, status_line
from toolkit.accounting.charges import Component
from toolkit.accounting.closed_part import closed_lines
from toolkit.accounting.export import iso
from toolkit.accounting.money import SECONDS_PER_HOUR
from toolkit.accounting.period_part import period_lines
from toolkit.accounting.phrases import (
    left_out,
    payers_text,
    price_sources,
    prices_text,
    racks_text,
    span,
    total_name,
)
from toolkit.accounting.report import NO_JOB_LABEL, Key
from toolkit.accounting.terminal import COLUMNS, amount, money, percent
from toolkit.finance import savings_text, words
from toolkit.finance.indicators import indicators
from toolkit.finance.plots import spend_plot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.accounting.report import Group, Report
    from toolkit.config.targets import Targets
    from toolkit.finance.measures import Measures

TOP: Final = 10
"""The rows of a list; the rest is one more row."""
NOTES: Final = 12
_BAR = 1000
"""The width of the bar in its own units; a part has at least one of them."""

_SHADES = {
    Component.WORK: "useful",
    Component.LOST: "lost",
    Component.FAILED_LAUNCH: "lost",
    Component.BOOT: "boot",
    Component.WAIT: "boot",
    Component.IDLE_GAP: "idle",
    Component.IDLE_TAIL: "idle",
    Component.IDLE: "idle",
    Component.MINIMUM: "idle",
    Component.UNALLOCATED: "unused",
    Component.RACK_IDLE: "unused",
    Component.COMMITMENT: "unused",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The report, its numbers and what they are compared with."""

    report: Report
    measures: Measures
    targets: Targets
    before: Mapping[str, Fraction | None] | None = None
    """The indicators of the period before, by name; None: they are not known."""


def render(subject: Subject, keys: Sequence[Key]) -> str:
    """Return the HTML; every name in it is escaped."""
    environment = Environment(
        loader=FileSystemLoader(assets.directory("templates") / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2").render(context(subject, keys))


def context(subject: Subject, keys: Sequence[Key]) -> dict[str, Any]:
    """Return the template's values: text, but for the plots' numbers."""
    report = subject.report
    return {
        "cluster": report.cluster,
        "span": span(report.window.since, report.window.until),
        "made_at": iso(report.made_at),
        "total": amount(report.net, report.gross, has_unknown=bool(report.unknown_costs)),
        "gross": money(report.gross, report.gross),
        "refund": money(report.refund, report.gross) if report.refund else "",
        "has_before": subject.before is not None,
        "indicators": indicators(subject.measures, subject.before, subject.targets),
        "plot": spend_plot(subject.measures.spend),
        "dollars": words.dollars,
        "components": _components(report),
        "types": _types(report),
        "waste": _waste(subject.measures),
        "savings": _savings(subject.measures),
        "unpriced": len(subject.measures.savings.unpriced),
        "unknown_savings": savings_text.unknown_lines(subject.measures.savings),
        "columns": [name for name, _ in COLUMNS],
        "sections": [
            _top(report, keys),
            *([_top(report, [Key.JOB])] if Key.JOB not in keys else []),
        ],
        "sources": price_sources(report),
        "payers": payers_text(report),
        "total_name": total_name(report),
        "left_out": left_out(report),
        "racks": racks_text(report),
        "bill": _bill_lines(report),
        "notes": report.notes[:NOTES],
        "other_notes": max(len(report.notes) - NOTES, 0),
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
                "shade": _SHADES.get(component, "base"),
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


def _types(report: Report) -> list[dict[str, str]]:
    """Return the dearest instance types, each way of buying apart."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for cost in report.costs:
        instance = report.instances[cost.instance_id]
        row = sums[instance.instance_type, instance.lifecycle]
        row[0] += cost.net
        row[1] += cost.seconds
        row[2] += cost.has_unknown
    rows = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return [
        {
            "type": kind,
            "lifecycle": lifecycle,
            "hours": words.hours(Fraction(seconds, SECONDS_PER_HOUR)),
            "percent": percent(micro, report.gross) if micro else "",
            "amount": amount(micro, report.gross, has_unknown=bool(unknown)),
        }
        for (kind, lifecycle), (micro, seconds, unknown) in rows[:TOP]
    ]


def _waste(measures: Measures) -> list[dict[str, Any]]:
    """Return the causes, the dearest first, each with its bar."""
    longest = max(measures.waste.values(), default=0)
    return [
        {
            "name": cause.value,
            "amount": words.dollars(micro),
            "percent": percent(micro, measures.cost) if measures.cost > 0 else "",
            "width": float(words.rounded(Fraction(100 * max(micro, 0), longest), 1))
            if longest > 0
            else 0,
        }
        for cause, micro in measures.waste.items()
    ]


def _savings(measures: Measures) -> list[dict[str, str]]:
    return [
        {
            "month": line.month,
            "measure": line.measure.value,
            "against": line.measure.against,
            "quantity": f"{words.rounded(line.quantity, 1):,} {line.measure.unit}",
            "saved": words.dollars(line.saved),
            "cost": words.dollars(line.cost),
            "net": words.dollars(line.net),
        }
        for line in measures.savings.lines
    ]


def _top(report: Report, keys: Sequence[Key]) -> dict[str, Any]:
    """Return the dearest groups, a row of the others, and the cluster."""
    groups = report.groups(keys)
    with_jobs = [group for group in groups if group.has_jobs]
    shown, others = with_jobs[:TOP], with_jobs[TOP:]
    rows = [_row(report, [*group.labels], [group]) for group in shown]
    blanks = [""] * (len(keys) - 1)
    if others:
        rows.append(_row(report, [f"{len(others)} more", *blanks], others))
    cluster = [group for group in groups if not group.has_jobs]
    if cluster:
        rows.append({**_row(report, [NO_JOB_LABEL, *blanks], cluster), "is_cluster": True})
    return {"headers": [key.value for key in keys], "rows": rows}


def _row(report: Report, names: list[str], groups: Sequence[Group]) -> dict[str, Any]:
    has_jobs = any(group.has_jobs for group in groups)
    return {
        "names": names,
        "is_cluster": False,
        "jobs": sum(len(group.jobs) for group in groups) if has_jobs else "",
        "attempts": sum(len(group.attempts) for group in groups) if has_jobs else "",
        "amounts": [
            amount(
                sum(group.sum_of(*parts) for group in groups),
                report.gross,
                has_unknown=any(group.has_unknown(*parts) for group in groups),
            )
            for _, parts in COLUMNS
        ],
        "total": amount(
            sum(group.total for group in groups),
            report.gross,
            has_unknown=any(group.has_unknown() for group in groups),
        ),
    }
