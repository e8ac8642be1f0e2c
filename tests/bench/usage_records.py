"""The records of the benchmark's cluster, as its head writes them: pages of each half hour.

A page of sacct has what ran in its time, so a job that runs on is in each page. A page of instances
has those that ended, and all that live. A day of prices is one page.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

from slurmplugins.model import records
from slurmplugins.reconciler.instance_ledger import LedgerEntry, to_json
from slurmplugins.slurm import sacct
from tests.bench import usage_history
from tests.fakes.record_bucket import FakeS3

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.bench.usage_history import Files
    from toolkit.accounting.instances import Instance
    from toolkit.prices import SpotHistory

CLUSTER, REGION, BUCKET = "bench", "us-east-1", "bench-bak"
DAY, PERIOD = 86_400, 1800
NAMES = (*sacct.REQUIRED, *sacct.OPTIONAL, *sacct.FREE_TEXT)
_DELIMITER = sacct.delimiter("8letters")


def write(files: Files, folder: Path) -> None:
    """Write the pages: with the last day's, and without."""
    rows = _rows(files)
    until = max(int(row["Submit"]) for row in rows) // DAY * DAY
    history = usage_history.spot_history(until + DAY)
    instances = list(usage_history.read_instances(files.instances, 0, until + 30 * DAY))
    s3 = FakeS3({BUCKET: {}})
    for day in range(usage_history.BEGIN, until + DAY, DAY):
        if day == until:
            _save(s3, folder / "records.pickle")
        for second in range(day, day + DAY, PERIOD):
            _add_attempts(s3, rows, second, second + PERIOD)
            _add_instances(s3, instances, second + PERIOD)
        _add_prices(s3, history, day)
    _save(s3, folder / "all-records.pickle")


def read(path: Path) -> FakeS3:
    """Return a bucket of records."""
    bucket: FakeS3 = pickle.loads(path.read_bytes())  # noqa: S301 - our own file
    return bucket


def _save(s3: FakeS3, path: Path) -> None:
    path.write_bytes(pickle.dumps(s3))


def _rows(files: Files) -> list[dict[str, str]]:
    """Return sacct's rows in the order of their starts."""
    lines: list[str] = []
    for path in (files.dump, files.day):
        lines += path.read_text().splitlines()[1:]
    found = [dict(zip(usage_history.FIELDS, line.split("|"), strict=True)) for line in lines]
    return sorted(found, key=lambda row: int(row["Start"]))


def _add_attempts(s3: FakeS3, rows: list[dict[str, str]], since: int, until: int) -> None:
    """Add a page, and forget the rows that ended in it."""
    texts, first, left = [], until, []
    for position, row in enumerate(rows):
        if int(row["Start"]) >= until:
            left += rows[position:]
            break
        ended = int(row["End"]) < until
        first = min(first, int(row["Submit"]))
        texts.append(_text(row if ended else {**row, "End": "Unknown", "State": "RUNNING"}))
        if not ended:
            left.append(row)
    rows[:] = left
    call = {"slurm": "25.11.7", "fields": NAMES, "delimiter": _DELIMITER}
    header = records.first_line("sacct", CLUSTER, (since, until), until, **call)
    body = records.pack(header, "".join(texts))
    s3.put(BUCKET, records.sacct_key(since, until, first, body), body, until)


def _text(row: Mapping[str, str]) -> str:
    values = {"Cluster": CLUSTER, "Eligible": row["Submit"]}
    return _DELIMITER.join({**row, **values}.get(name, "") for name in NAMES) + "\n"


def _add_instances(s3: FakeS3, instances: list[Instance], until: int) -> None:
    """Add a page, and forget the instances that had ended."""
    launched = [item for item in instances if item.launched < until]
    ended = [item for item in launched if (item.ended or 0) < until]
    gone = {item.instance_id for item in ended}
    instances[:] = [item for item in instances if item.instance_id not in gone]
    first = min([item.launched for item in ended], default=until)
    header = records.first_line("instances", CLUSTER, (first, until), until)
    lines = (
        json.dumps(to_json(_entry(item, until)), separators=(",", ":")) + "\n" for item in launched
    )
    body = records.pack(header, "".join(lines))
    s3.put(BUCKET, records.instances_key(until, first, body), body, until)


def _entry(item: Instance, until: int) -> LedgerEntry:
    has_ended = (item.ended or 0) < until
    return LedgerEntry(
        instance_id=item.instance_id,
        node=item.node,
        pool=item.pool,
        partition="spot",
        attempt="a-1",
        type=item.instance_type,
        zone=item.zone,
        lifecycle="spot",
        launched_at=float(item.launched),
        price=str(item.tag_price),
        running_at=float(item.running or item.launched),
        ended_at=float(item.ended or 0) if has_ended else None,
        end_cause=item.end_cause if has_ended else None,
    )


def _add_prices(s3: FakeS3, history: SpotHistory, day: int) -> None:
    points = sorted(
        (kind, zone, second, str(usd))
        for (kind, zone), changes in history.changes.items()
        for second, usd in changes
        if day <= second < day + DAY
    )
    more = {"region": REGION, "types": sorted(usage_history.TYPES)}
    header = records.first_line("prices", CLUSTER, (day, day + DAY), day + DAY, **more)
    body = records.pack(header, "".join(json.dumps(point) + "\n" for point in points))
    s3.put(BUCKET, records.prices_key(REGION, day, body), body, day + DAY)
