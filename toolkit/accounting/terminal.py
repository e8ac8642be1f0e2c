"""The report on a terminal: spending by user or job, by component and by instance.

Made for 80 columns. Amounts are not rounded while they fit: the printed ones add up by
hand.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group as Stack
from rich.table import Table
from rich.text import Text

from toolkit.accounting.bill_status import correction_line, status_line
from toolkit.accounting.charges import Component
from toolkit.accounting.closed_part import closed_lines
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import MICRO, usd
from toolkit.accounting.period_part import period_lines
from toolkit.accounting.phrases import (
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
from toolkit.accounting.report import NO_JOB_LABEL, PRINTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.report import Group, Key, Report

_BAR = 12
_EXACT_BELOW = 1_000 * MICRO

IDLE = (Component.IDLE_GAP, Component.IDLE_TAIL, Component.IDLE)
_NAMED_COLUMNS = (
    ("useful", (Component.WORK,)),
    ("lost", (Component.LOST,)),
    ("boot", (Component.BOOT, Component.WAIT)),
    ("idle", IDLE),
)
_OTHER_COMPONENTS = tuple(
    item for item in Component if not any(item in parts for _, parts in _NAMED_COLUMNS)
)
COLUMNS = (*_NAMED_COLUMNS, ("other", _OTHER_COMPONENTS))
"""The columns of money: every component is in exactly one of them."""

_STYLES = {
    Component.WORK: "green",
    Component.LOST: "red",
    Component.BOOT: "yellow",
    Component.WAIT: "yellow",
    Component.IDLE_GAP: "yellow",
    Component.IDLE_TAIL: "yellow",
    Component.IDLE: "yellow",
    Component.UNALLOCATED: "magenta",
    Component.FAILED_LAUNCH: "red",
    Component.RACK_IDLE: "magenta",
    Component.STORAGE: "blue",
    Component.NETWORK: "blue",
    Component.COMMITMENT: "magenta",
    Component.MINIMUM: "yellow",
    Component.HEAD: "blue",
    Component.OTHER: "blue",
    Component.REFUND: "cyan",
}


def render(report: Report, keys: Sequence[Key]) -> RenderableType:
    """Return the whole report for `Console.print`."""
    notes = [Text(f"note: {printable(note)}", style="yellow") for note in report.notes]
    if not report.costs:
        words = "No instance had a known cost" if report.unknown_costs else "No instance had a cost"
        empty = Text(f"{_title(report)}\n{words} in this time.")
        return Stack(empty, *_bill_lines(replace(report, bill_status=None)), *notes)
    parts: list[RenderableType] = [
        Text(_title(report), style="bold"),
        _spending_table(report, keys),
        _component_table(report),
        _instance_table(report),
        Text(_price_line(report), style="dim"),
        *_bill_lines(report),
    ]
    return Stack(*parts, *notes)


def _bill_lines(report: Report) -> list[Text]:
    """Return the lines on closed days, and on days against AWS's bill."""
    closed = [
        Text(printable(line), style="dim")
        for line in (*closed_lines(report.closed), *period_lines(report.period, report.net))
    ]
    if report.bill_status is None:
        return closed
    corrections = map(correction_line, report.bill_status.corrections)
    return [
        *closed,
        Text(status_line(report.bill_status), style="dim"),
        *(Text(printable(line), style="yellow") for line in corrections),
    ]


def _title(report: Report) -> str:
    return f"Cost of cluster {report.cluster}, {span(report.window.since, report.window.until)}"


def money(micro: int, total: int) -> str:
    """Return dollars with six places, or two if the report is large.

    Two are used if six would not fit in the columns.
    """
    if abs(total) < _EXACT_BELOW:
        return f"{usd(micro):,.6f}"
    return f"{usd(micro).quantize(Decimal('0.01')):,.2f}"


def amount(micro: int, total: int, *, has_unknown: bool) -> str:
    """Return dollars; a `?` stands for the unknown part."""
    if not has_unknown:
        return money(micro, total)
    return f"{money(micro, total)}+?" if micro else "?"


def percent(micro: int, total: int) -> str:
    """Return a part of a whole in percent, with one place."""
    return f"{Decimal(100 * micro) / Decimal(total):.1f} %" if total else ""


def printable(text: str) -> str:
    """Return outside text with unprintable characters replaced.

    It can't control the terminal.
    """
    return "".join(character if character.isprintable() else "?" for character in text)


def _table(*, footer: bool, gap: int = 1) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        show_footer=footer,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        header_style="bold",
        footer_style="bold",
    )


def _spending_table(report: Report, keys: Sequence[Key]) -> Table:
    groups = report.groups(keys)
    groups_with_jobs = [group for group in groups if group.has_jobs]
    # With no gap but the box's own blank, seven columns and the names fit in 80.
    table = _table(footer=True, gap=0)
    attempt_count = str(sum(len(group.attempts) for group in groups_with_jobs))
    table.add_column("/".join(keys), footer="total", overflow="fold", min_width=9)
    table.add_column("attempts", justify="right", footer=attempt_count)
    for name, components in COLUMNS:
        footer = _amount(report, groups, components)
        table.add_column(name, justify="right", footer=footer, no_wrap=True)
    table.add_column("USD", justify="right", footer=_total(report), no_wrap=True)
    count = PRINTED if len(groups_with_jobs) <= PRINTED else PRINTED - 1
    other_groups = groups_with_jobs[count:]
    for group in groups_with_jobs[:count]:
        label = "/".join(printable(part) for part in group.labels)
        table.add_row(Text(label), *_amounts(report, [group]))
    if other_groups:
        label = f"({len(other_groups)} more)"
        table.add_row(label, *_amounts(report, other_groups), style="dim")
    for group in groups:
        if not group.has_jobs:
            table.add_row(NO_JOB_LABEL, *_amounts(report, [group]), style="dim")
    return table


def _amounts(report: Report, groups: Sequence[Group]) -> list[str]:
    attempt_count = sum(len(group.attempts) for group in groups)
    return [
        str(attempt_count) if attempt_count else "",
        *(_amount(report, groups, components) for _, components in COLUMNS),
        amount(
            sum(group.total for group in groups),
            report.gross,
            has_unknown=any(group.has_unknown() for group in groups),
        ),
    ]


def _amount(report: Report, groups: Sequence[Group], components: Sequence[Component]) -> str:
    micro = sum(group.sum_of(*components) for group in groups)
    has_unknown = any(group.has_unknown(*components) for group in groups)
    return amount(micro, report.gross, has_unknown=has_unknown) if micro or has_unknown else "-"


def _total(report: Report) -> str:
    return amount(report.net, report.gross, has_unknown=bool(report.unknown_costs))


def _component_table(report: Report) -> Table:
    table = _table(footer=True)
    table.add_column("component", footer=total_name(report))
    table.add_column("USD", justify="right", footer=_total(report))
    table.add_column("", justify="right", footer="exact sum")
    table.add_column("")
    table.add_column("prices, the oldest of", overflow="fold")
    for component, micro in report.components().items():
        share = max(micro, 0) * _BAR
        length = round(Decimal(share) / Decimal(report.gross)) if report.gross else 0
        table.add_row(
            component.value,
            amount(micro, report.gross, has_unknown=component in report.unknown_components),
            percent(micro, report.gross) if micro else "",
            Text("█" * max(length, 1 if micro > 0 else 0), style=_STYLES[component]),
            prices_text(report.component_prices.get(component)),
        )
    return table


def _instance_table(report: Report) -> Table:
    table = _table(footer=False, gap=0)
    table.add_column("instance", no_wrap=True)
    table.add_column("type")
    table.add_column("lifecycle")
    table.add_column("duration", justify="right", no_wrap=True)
    table.add_column("USD/h", justify="right")
    table.add_column("price", overflow="fold")
    table.add_column("ended by", overflow="fold")
    table.add_column("USD", justify="right", no_wrap=True)
    dearest = report.dearest(PRINTED)
    for cost in dearest.costs:
        table.add_row(*_instance_row(report, cost))
    if dearest.others:
        unknown = dearest.others_unknown
        total = amount(dearest.others_net, report.gross, has_unknown=unknown)
        table.add_row(f"({dearest.others} more)", "", "", "", "", "", "", total, style="dim")
    return table


def _instance_row(report: Report, cost: InstanceCost) -> list[Text]:
    """Return the cells as Text, in which a name can't be markup."""
    instance = report.instances[cost.instance_id]
    name = "head node" if instance.is_head else instance.node or cost.instance_id
    prices = cost.charge_prices
    cells = (
        printable(name),
        printable(instance.instance_type),
        instance.lifecycle,
        duration(cost.seconds),
        price_text(cost),
        sources_text(prices.sources) if prices else "",
        printable(end_text(instance)),
        amount(cost.net, report.gross, has_unknown=cost.has_unknown),
    )
    return [Text(cell) for cell in cells]


def end_text(instance: Instance) -> str:
    """Return the end of an instance; a rack's node has none."""
    if instance.kind is not Kind.INSTANCE:
        return ""
    return "(running)" if instance.ended is None else instance.end_cause or "ended"


def duration(seconds: int) -> str:
    """Return a duration in its two largest units."""
    hours, hour_seconds = divmod(seconds, 3600)
    minutes, minute_seconds = divmod(hour_seconds, 60)
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {minute_seconds:02} s"


def _price_line(report: Report) -> str:
    made_at = datetime.fromtimestamp(report.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    payers = f"who pays: {payers_text(report)}"
    lines = (
        racks_text(report),
        f"prices: {price_sources(report)}",
        payers,
        f"as of {made_at}; before {left_out(report)}",
    )
    return "\n".join(filter(None, lines))
