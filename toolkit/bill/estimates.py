"""The estimates of our report, by instance and UTC day.

The one input is the JSON of `toolkit report --json`, fresh or from a file. So a bill can be
reconciled without the cluster and without AWS.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from toolkit.bill.amounts import parse_amount, total
from toolkit.bill.errors import ReportUnreadable
from toolkit.config.types import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal
    from pathlib import Path

_NEXT: Final = "make it by `toolkit report --json --since TIME`"
_ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of one instance on one day, by our report."""

    seconds: int
    usd: Decimal | None  # None: nobody knows


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates of one cluster, and the days for which they are complete."""

    cluster: str
    since: datetime
    until: datetime
    nodes: Mapping[str, str]  # each instance's node, by instance id; empty: it is none
    by_day: Mapping[tuple[str, date], Estimate]  # by instance id and day

    def is_complete(self, day: date) -> bool:
        """Return whether the report has the whole day."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return self.since <= midnight and midnight + _ONE_DAY <= self.until


def read(path: Path) -> Estimates:
    """Return the estimates of a saved report. Raises ReportUnreadable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ReportUnreadable(f"{path} can't be read: {error}", next_step=_NEXT) from error
    try:
        return parse(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportUnreadable(
            f"{path} is no report of this toolkit: {type(error).__name__} {error}", next_step=_NEXT
        ) from error


def parse(content: Mapping[str, Any]) -> Estimates:
    """Return the estimates of a report's JSON. Raises KeyError, TypeError or ValueError."""
    if not re.fullmatch(NAME, content["cluster"]):
        raise ValueError("its cluster has no valid name")
    nodes: dict[str, str] = {}
    by_day: dict[tuple[str, date], Estimate] = {}
    for instance in content["instances"]:
        instance_id = str(instance["instance"])
        if instance_id in nodes:
            raise ValueError(f"{instance_id} is there twice")
        nodes[instance_id] = str(instance["node"] or "")
        days = {
            date.fromisoformat(item["day"]): Estimate(int(item["seconds"]), _usd(item["usd"]))
            for item in instance["days"]
        }
        _check_sum(instance, days)
        by_day |= {(instance_id, day): estimate for day, estimate in days.items()}
    return Estimates(
        cluster=content["cluster"],
        since=_time(content["asked_since"]),
        until=_time(content["until"]),
        nodes=nodes,
        by_day=by_day,
    )


def _check_sum(instance: Mapping[str, Any], days: Mapping[date, Estimate]) -> None:
    known = [item.usd for item in days.values() if item.usd is not None]
    if len(known) == len(days) and total(known) != _usd(instance["total"]):
        raise ValueError(f"the days of {instance['instance']} do not add up to its total")


def _usd(text: str | None) -> Decimal | None:
    if text is None:
        return None
    amount = parse_amount(text)
    if amount is None:
        raise ValueError(f"{text[:40]!r} is no amount")
    return amount


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
