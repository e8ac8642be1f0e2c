"""The report as data: JSON with everything, CSV with a line for each charge."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolkit.accounting.bill_status import usd_text
from toolkit.accounting.money import usd
from toolkit.accounting.phrases import day as day_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.bill_status import BillStatus
    from toolkit.accounting.charges import Charge, ChargePrices, InstanceCost
    from toolkit.accounting.closed_part import ClosedPart
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.period_part import PeriodPart
    from toolkit.accounting.report import Group, Key, Report

# A cell that begins with one of these may be a formula to a spreadsheet, and users choose names.
# Spreadsheets drop blanks ahead of a sign, and read full-width signs as the plain ones.
_FORMULA_SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_FORMULA_BREAKS = ("\t", "\n")


UNKNOWN = "unknown"


def as_json(report: Report, keys: Sequence[Key]) -> dict[str, Any]:
    """Return the whole report as JSON values.

    Money is text in dollars with six places, so it is never a float.
    """
    return {
        "cluster": report.cluster,
        "asked_since": iso(
            report.window.since if report.asked_since is None else report.asked_since
        ),
        "since": iso(report.window.since),
        "until": iso(report.window.until),
        "made_at": iso(report.made_at),
        "currency": "USD",
        "cost_policy": report.cost_policy.payers(),
        "gross": money(report.gross),
        "refund": money(report.refund),
        "total": money(report.net),
        "racks_total": money(report.racks_net),
        "unknown_costs": list(report.unknown_costs),
        "components": {name.value: money(micro) for name, micro in report.components().items()},
        "by": [key.value for key in keys],
        "groups": [_group(group, keys) for group in report.groups(keys, with_prices=True)],
        "instances": [_instance(cost, report.instances[cost.instance_id]) for cost in report.costs],
        "charges": [_charge(charge, report) for charge in report.charges()],
        "attempts": [
            _attempt(report.attempts[key], report.attempt_numbers[key])
            for key in sorted(_charged_attempts(report))
        ],
        "set_aside": [
            {"name": item.name, "reason": item.reason, "has_unknown_cost": item.has_unknown_cost}
            for item in report.set_aside
        ],
        "notes": list(report.notes),
        "bill": None if report.bill_status is None else _bill_status(report.bill_status),
        "closed": None if report.closed is None else _closed(report.closed),
        "period": None if report.period is None else _period(report.period),
    }


def as_csv(report: Report) -> str:
    """Return a line for each charge; `usd` sums to the total exactly.

    It is the word `unknown` where no price is known. Jobs and records without any known
    cost follow, each with a line.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=CHARGE_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in charge_rows(report):
        writer.writerow({name: cell(name, value) for name, value in row.items()})
    unknown_costs = report.unknown_costs
    charged_ids = {cost.instance_id for cost in report.costs} if unknown_costs else set()
    for name in unknown_costs:
        if name not in charged_ids:
            row = {"component": UNKNOWN, "instance": name, "usd": None}
            writer.writerow({key: cell(key, value) for key, value in row.items()})
    return out.getvalue()


def charge_rows(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the values of each charge, by the names of `CHARGE_FIELDS`."""
    for charge in report.charges():
        yield _charge(charge, report)


CHARGE_FIELDS = (
    "component",
    "account",
    "user",
    "job",
    "attempt",
    "instance",
    "node",
    "type",
    "seconds",
    "usd",
    "db_index",
    "lifecycle",
    "price_source",
    "price_as_of",
    "partition",
    "qos",
    "project",
    "run",
    "pool",
)


def money(micro: int) -> str:
    """Return dollars with all six places."""
    return str(usd(micro))


@lru_cache(maxsize=4096)  # the days of prices are few
def iso(second: int | None) -> str | None:
    """Return an epoch second in ISO 8601, UTC."""
    if second is None:
        return None
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cell(name: str, value: object) -> object:
    """Return a CSV cell that no spreadsheet takes for a formula."""
    if name == "usd":
        return UNKNOWN if value is None else value
    return value if not isinstance(value, str) else safe_cell(value)


def safe_cell(value: str) -> str:
    """Return outside text as a cell that is no formula."""
    # The csv module leaves a lone carriage return without quotes, and it would begin a row.
    value = value.replace("\r", "\n")
    is_formula = value.startswith(_FORMULA_BREAKS) or value.lstrip().startswith(_FORMULA_SIGNS)
    return f"'{value}" if is_formula else value


def _charged_attempts(report: Report) -> set[int]:
    return {charge.attempt for charge in report.charges() if charge.attempt is not None}


def _group(group: Group, keys: Sequence[Key]) -> dict[str, Any]:
    return {
        **{key.value: value or None for key, value in zip(keys, group.key_values, strict=True)},
        "jobs": len(group.jobs),
        "attempts": len(group.attempts),
        "machine_seconds": _seconds(group.seconds),
        "components": {name.value: money(micro) for name, micro in group.micro.items()},
        "total": money(group.total),
        "has_unknown_cost": group.has_unknown(),
        **price_fields(group.prices),
    }


def price_fields(prices: ChargePrices | None) -> dict[str, Any]:
    """Return the sources of prices, and the time of the oldest."""
    return {
        "price_sources": [source.value for source in prices.sources] if prices else [],
        "price_as_of": iso(prices.as_of) if prices else None,
    }


def _instance(cost: InstanceCost, instance: Instance) -> dict[str, Any]:
    return {
        "instance": cost.instance_id,
        "node": instance.node or None,
        "pool": instance.pool or None,
        "type": instance.instance_type,
        "zone": instance.zone,
        "capacity": instance.lifecycle,
        "launched": iso(instance.launched),
        "billed_from": iso(instance.billed_from),
        "ended": iso(instance.ended),
        "end_cause": instance.end_cause or None,
        "end_seen": instance.end_seen,
        "billed_seconds": cost.seconds,
        "gross": money(cost.gross),
        "refund": money(cost.refund),
        "total": money(cost.net),
        "has_unknown_cost": cost.has_unknown,
        "prices": [
            {
                "usd_per_hour": str(price.usd_per_hour) if price.is_known else None,
                "source": price.source.value,
                "as_of": iso(price.as_of),
            }
            for price in cost.prices
        ],
        "days": [
            {
                "day": day.day.isoformat(),
                "seconds": day.seconds,
                "usd": money(day.micro) if day.price_known else None,
            }
            for day in cost.days
        ],
    }


def _bill_status(status: BillStatus) -> dict[str, Any]:
    return {
        "estimated_days": status.estimated,
        "reconciled_days": status.reconciled,
        "final_days": status.final,
        "corrections": [
            {
                "day": item.day.isoformat(),
                "resource": item.resource,
                "old": usd_text(item.old),
                "new": usd_text(item.new),
                "difference": usd_text(item.difference),
                "at": iso(item.at),
            }
            for item in status.corrections
        ],
    }


def _closed(part: ClosedPart) -> dict[str, Any]:
    return {
        "days": [day_text(second) for second in part.days],
        "is_whole": part.is_whole,
        "corrections": [
            {
                "day": day_text(item.day),
                "at": iso(item.at),
                "old": money(item.old),
                "new": money(item.new),
                "difference": money(item.new - item.old),
            }
            for item in part.corrections
        ],
    }


def _period(part: PeriodPart) -> dict[str, Any]:
    return {
        "name": part.name,
        "state": part.state,
        "revision": part.revision,
        "closed_at": iso(part.closed_at),
        "corrections_total": money(part.corrected_micro),
        "corrections": [
            {
                "period": item.period,
                "account": item.account or None,
                "user": item.user or None,
                "project": item.project or None,
                "job": item.job or None,
                "component": item.component,
                "instance": item.instance,
                "type": item.instance_type or None,
                "usd": None if item.becomes_unknown else money(item.micro),
            }
            for item in part.corrections
        ],
    }


def _charge(charge: Charge, report: Report) -> dict[str, Any]:
    attempt = None if charge.attempt is None else report.attempts[charge.attempt]
    instance = report.instances.get(charge.instance_id)  # a share belongs to none
    prices = charge.prices
    return {
        "component": charge.component.value,
        "account": attempt.account if attempt else None,
        "user": attempt.user if attempt else None,
        "job": attempt.job_id if attempt else None,
        "attempt": None if charge.attempt is None else report.attempt_numbers[charge.attempt],
        "instance": charge.instance_id,
        "node": instance.node or None if instance else None,
        "type": instance.instance_type if instance else None,
        "seconds": _seconds(charge.seconds),
        "usd": money(charge.micro) if charge.price_known else None,
        # Slurm's key has 63 bits; as a number it would be rounded by most readers.
        "db_index": None if charge.attempt is None else str(charge.attempt),
        "lifecycle": instance.lifecycle if instance else None,
        "price_source": " ".join(prices.sources) if prices else None,
        "price_as_of": iso(prices.as_of) if prices else None,
        "partition": attempt.partition or None if attempt else None,
        "qos": attempt.qos or None if attempt else None,
        "project": attempt.project or None if attempt else None,
        "run": attempt.name or None if attempt else None,
        "pool": instance.pool or None if instance else None,
    }


def _attempt(attempt: Attempt, number: int) -> dict[str, Any]:
    return {
        "attempt": number,
        "db_index": str(attempt.key),
        "job": attempt.job_id,
        "job_text": attempt.job,
        "name": attempt.name,
        "account": attempt.account,
        "user": attempt.user,
        "partition": attempt.partition,
        "qos": attempt.qos,
        "project": attempt.project,
        "state": attempt.state,
        "restarts": attempt.restarts,
        "started": iso(attempt.started),
        "ended": iso(attempt.ended),
        "lost_from": iso(attempt.lost_from()),
        "nodes": [*attempt.nodes, *attempt.other_nodes],
    }


def _seconds(seconds: Fraction) -> int | str:
    """Return whole seconds as a number, fractions as decimal text."""
    return int(seconds) if seconds.denominator == 1 else f"{float(seconds):.3f}"
