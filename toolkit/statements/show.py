"""Periods for people: their states, their doubtful rows, the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolkit.accounting.export import iso, money
from toolkit.accounting.phrases import moment
from toolkit.output import counted, plain, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.accounting.periods import Period
    from toolkit.statements.cluster_periods import ClusterPeriods
    from toolkit.statements.doubts import Doubt
    from toolkit.statements.log import LogEntry

MONTH_HEADERS: Final = ("month", "state", "revision", "closed", "days", "USD", "corrections")


def month(cluster: ClusterPeriods, period: Period) -> dict[str, Any]:
    """Return a month as JSON values.

    Its cost is the sum of its days as they were closed; a month that is closed has its own.
    """
    record = cluster.record(period)
    copy = cluster.closed.get(period.name)
    window = period.window
    days = (cluster.days if copy is None else copy.days).days
    own = [item for day, item in days.items() if window.since <= day < window.until]
    pending = cluster.pending(period) if copy is None else {}
    booked = copy.facts.booked if copy else [item for items in pending.values() for item in items]
    return {
        "period": period.name,
        "state": record.state.value,
        "revision": record.revision,
        "closed_at": iso(record.closed_at),
        "closed_days": len(own),
        "days": (period.last - period.first).days + 1,
        "usd": money(sum(item.micro for item in own)),
        "corrections_usd": money(sum(item.micro for item in booked)),
        "corrected_periods": sorted({item.period for item in booked}),
    }


def month_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the cells of a month's row."""
    corrected = ", ".join(row["corrected_periods"])
    return (
        row["period"],
        row["state"],
        row["revision"] or "-",
        row["closed_at"] or "-",
        f"{row['closed_days']} of {row['days']}",
        row["usd"],
        f"{row['corrections_usd']} of {corrected}" if corrected else "-",
    )


def doubt_json(doubt: Doubt, approval: LogEntry | None) -> dict[str, Any]:
    """Return a doubtful row as JSON values."""
    return {
        "id": doubt.id,
        "kind": doubt.kind,
        "subject": doubt.subject,
        "text": doubt.text,
        "approved_by": None if approval is None else approval.who,
        "reason": None if approval is None else approval.reason,
    }


def doubts_text(period: Period, doubts: Sequence[Doubt], approved: Mapping[str, LogEntry]) -> str:
    """Return the table of doubtful rows."""
    if not doubts:
        return f"{period.name} has no doubtful row: `toolkit period close {period.name}`"
    missing = [item for item in doubts if item.id not in approved]
    rows = [
        (
            item.id,
            item.sentence,
            f"{approved[item.id].who}: {approved[item.id].reason}" if item.id in approved else "-",
        )
        for item in doubts
    ]
    total = f"{counted(len(doubts), 'doubtful row')}, {len(missing)} to approve"
    return f"{table(('id', 'row', 'approved by'), rows)}\n{total}"


def entry_json(entry: LogEntry) -> dict[str, Any]:
    """Return a line of the log as JSON values."""
    return {
        "at": iso(entry.at),
        "period": entry.period,
        "change": entry.change.value,
        "who": entry.who,
        "reason": entry.reason,
        "doubts": [{"id": name, "text": text} for name, text in entry.doubts],
        "revision": entry.revision or None,
        "digest": entry.digest or None,
    }


def entry_lines(entry: LogEntry) -> list[str]:
    """Return the text of a log's entry, with its approved rows."""
    revision = f" revision {entry.revision}" if entry.revision else ""
    reason = f": {entry.reason}" if entry.reason else ""
    text = f"{moment(entry.at)} {entry.period} {entry.change}{revision} by {entry.who}{reason}"
    return [plain(text), *(f"    {name} {plain(row)}" for name, row in entry.doubts)]
