"""Closed days for people: what a closing does and did, and what a store has."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from toolkit.accounting.export import iso, money
from toolkit.accounting.phrases import moment
from toolkit.output import table
from toolkit.usage.database import day as day_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.usage.close_days import DayResult, Plan
    from toolkit.usage.closed_store import ClosedDays
    from toolkit.usage.cluster_store import RecordFiles
    from toolkit.usage.read_records import ReadResult


def read_json(result: ReadResult) -> dict[str, Any]:
    """Return what was read as JSON values."""
    return {
        "s3_lists": result.lists,
        "s3_gets": result.pages,
        "new_pages": result.pages,
        "rows": result.attempts,
        "set_aside": [{"name": item.name, "reason": item.reason} for item in result.set_aside],
    }


def read_text(result: ReadResult, *, dry_run: bool) -> str:
    """Return the line on what was read."""
    verb = "would read" if dry_run else "read"
    aside = f", {len(result.set_aside)} things set aside" if result.set_aside else ""
    return (
        f"records: {verb} {result.pages:,} new pages"
        f" (S3: {result.lists:,} LIST, {result.pages:,} GET){aside}"
    )


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    return {
        "known_until": iso(plan.reach),
        "close": [day_text(day) for day in plan.new_days],
        "weigh_again": [day_text(day) for day in plan.checked_days],
        "other_settings": [day_text(day) for day in plan.other_settings],
    }


def plan_text(plan: Plan) -> str:
    """Return a plan for a terminal."""
    known = f"attempts and instances are known up to {moment(plan.reach)} UTC"
    lines = [known, f"close: {_days(plan.new_days) or 'no day'}"]
    if plan.checked_days:
        lines.append(f"weigh again, since the records say more: {_days(plan.checked_days)}")
    return "\n".join([*lines, *settings_lines(plan)])


def settings_lines(plan: Plan) -> list[str]:
    """Return the line on closed days that are left alone."""
    if not plan.other_settings:
        return []
    first = day_text(plan.other_settings[0])
    again = f"`toolkit usage close --again-from {first}` uses the new ones"
    return [
        f"left as closed, though the records say more: {_days(plan.other_settings)}",
        f"prices or payers in cluster.yaml have changed since; {again}",
    ]


def result_json(result: DayResult) -> dict[str, Any]:
    """Return a written day as JSON values."""
    correction = result.correction
    return {
        "day": day_text(result.day),
        "usd": money(result.micro),
        "correction": None
        if correction is None
        else {"old": money(correction.old), "new": money(correction.new)},
    }


def result_text(result: DayResult) -> str:
    """Return the line of a written day."""
    if result.correction is None:
        return f"closed {day_text(result.day)}: {money(result.micro)} USD"
    old, new = result.correction.old, result.correction.new
    return f"corrected {day_text(result.day)}: {money(old)} to {money(new)} USD"


def cluster_json(
    cluster: str, files: RecordFiles, closed: ClosedDays, statuses: Mapping[int, str]
) -> dict[str, Any]:
    """Return a cluster's store as JSON values."""
    return {
        "cluster": cluster,
        "attempts": sum(day.attempts for day in files.attempts.values()),
        "sacct_until": iso(files.sacct_until),
        "instances_until": iso(files.instances_until),
        "closed_days": len(closed.days),
        "first_closed_day": day_text(min(closed.days)) if closed.days else None,
        "last_closed_day": day_text(max(closed.days)) if closed.days else None,
        "corrections": sum(len(day.corrections) for day in closed.days.values()),
        "closed_usd": money(sum(day.micro for day in closed.days.values())),
        "status": dict(Counter(statuses.values())),
    }


def clusters_text(clusters: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of clusters' stores."""
    headers = ("cluster", "attempts", "records up to", "closed", "days", "USD", "corrections",
               "days by AWS's bill")  # fmt: skip
    rows = [
        (
            item["cluster"], f"{item['attempts']:,}", item["sacct_until"] or "-",
            f"{item['first_closed_day']} to {item['last_closed_day']}" if item["closed_days"]
            else "-",
            item["closed_days"], item["closed_usd"], item["corrections"],
            ", ".join(f"{count} {name}" for name, count in sorted(item["status"].items())) or "-",
        )
        for item in clusters
    ]  # fmt: skip
    return table(headers, rows)


def _days(days: Sequence[int]) -> str:
    """Return days as text, those that follow each other as one span."""
    spans: list[list[int]] = []
    for day in days:
        if spans and day == spans[-1][1] + 86_400:
            spans[-1][1] = day
        else:
            spans.append([day, day])
    return ", ".join(
        day_text(first) if first == last else f"{day_text(first)} to {day_text(last)}"
        for first, last in spans
    )
