"""A list of the instances of somebody's cluster: one a line, as CSV.

The first line names the columns. Needed are `instance`, `node`, `type` and `launched`; `ended`,
`zone`, `lifecycle` and `usd_per_hour` are used where they are there.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import Lifecycle
from toolkit.accounting.instances import Instance
from toolkit.accounting.sacct import LATEST_SECOND
from toolkit.prices import (
    Catalogue,
    Price,
    PriceBook,
    PriceSource,
    PriceSpan,
    SpotHistory,
    parse_usd,
)
from toolkit.usage.errors import InstancesUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NEEDED: Final = ("instance", "node", "type", "launched")
OTHERS: Final = ("ended", "zone", "lifecycle", "usd_per_hour")
_END_OF_TIME: Final = 2**40


@dataclass(frozen=True, slots=True)
class InstanceList:
    """Instances, and the book that has their prices."""

    instances: tuple[Instance, ...]
    book: PriceBook


def read(path: Path) -> InstanceList:
    """Read a list of instances. Raises InstancesUnreadable."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return parse(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InstancesUnreadable(f"can't read {path}: {error}") from error


def parse(lines: Iterable[str]) -> InstanceList:
    """Parse the lines of a list.

    A price of the list goes before the catalogue's. Raises InstancesUnreadable.
    """
    rows = csv.DictReader(lines)
    missing = [name for name in NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise InstancesUnreadable(
            f"the list of instances has no column {', '.join(missing)}",
            next_step=f"name the columns in its first line: {','.join((*NEEDED, *OTHERS))}",
        )
    instances: dict[str, Instance] = {}
    for number, row in enumerate(rows, start=2):
        item = _instance(row, number)
        if item.instance_id in instances:
            raise InstancesUnreadable(f"line {number}: {item.instance_id} is there twice")
        instances[item.instance_id] = item
    return InstanceList(tuple(instances.values()), _book(instances.values()))


def _instance(row: Mapping[str, str | None], number: int) -> Instance:
    values = {name: (row.get(name) or "").strip() for name in (*NEEDED, *OTHERS)}
    launched = _moment(values["launched"])
    ended = _moment(values["ended"])
    usd = parse_usd(values["usd_per_hour"]) if values["usd_per_hour"] else None
    lifecycle = values["lifecycle"] or Lifecycle.ON_DEMAND.value
    faults = {
        "no instance": not values["instance"],
        "no type": not values["type"],
        f"launched {values['launched']!r} is no time": launched is None,
        f"ended {values['ended']!r} is no time": bool(values["ended"]) and ended is None,
        f"{values['usd_per_hour']!r} is no price": bool(values["usd_per_hour"]) and usd is None,
        f"lifecycle {lifecycle!r} is neither spot nor on-demand": lifecycle not in set(Lifecycle),
    }
    for text, is_fault in faults.items():
        if is_fault:
            raise InstancesUnreadable(
                f"line {number}: {text}", next_step="correct the line, or leave it out"
            )
    return Instance(
        instance_id=values["instance"],
        node=values["node"],
        pool="",
        instance_type=values["type"],
        zone=values["zone"],
        spot=lifecycle == Lifecycle.SPOT,
        launched=launched or 0,
        ended=ended,
        end_cause="",
        tag_price=usd,
    )


def _moment(text: str) -> int | None:
    """Return epoch seconds of themselves or of ISO 8601.

    A time without a zone is UTC.
    """
    if text.isascii() and text.isdecimal():
        return int(text) if 0 < int(text) < LATEST_SECOND else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _book(instances: Iterable[Instance]) -> PriceBook:
    """Return the prices of the list.

    On-demand instances without one have the list price of their region.
    """
    fixed = {}
    regions = set()
    for item in instances:
        if item.tag_price is None:
            regions.add(item.zone[:-1])
        elif not item.spot:
            price = Price(item.tag_price, PriceSource.CONTRACT, item.launched)
            fixed[item.instance_id] = (PriceSpan(0, _END_OF_TIME, price),)
    if len(regions) > 1:
        raise InstancesUnreadable(
            f"instances without a price are in several regions: {', '.join(sorted(regions))}",
            next_step="give them a price in the column usd_per_hour",
        )
    region = next(iter(regions), "")
    return PriceBook(region, Catalogue.bundled(), SpotHistory(), fixed=fixed)
