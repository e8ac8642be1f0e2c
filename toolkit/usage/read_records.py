"""New records of one's own cluster, read from their bucket into its store.

Only pages that were not read before are fetched. They come in batches: the rows of a batch are in
the store before its pages are written down as read. Whoever is killed in between reads some of them
again, which changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from slurmplugins.model import records
from toolkit.accounting import ledger, metrics
from toolkit.accounting.errors import LedgerError
from toolkit.accounting.records import DAMAGED, instance_lines, parse_attempts, read_pages
from toolkit.accounting.set_aside import SetAside
from toolkit.usage import database as databases, record_changes
from toolkit.usage.cluster_store import ReadPage
from toolkit.usage.merge import days_of_rows, merge
from toolkit.usage.record_rows import ATTEMPTS, INSTANCES, METRICS, PRICES, attempt_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_s3 import S3Client

    from slurmplugins.model.records import RecordKey
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.records import Page, RecordedLine
    from toolkit.usage.cluster_store import ClusterStore, RecordFiles, Work
    from toolkit.usage.merge import Table
    from toolkit.usage.store import Day

PAGES_A_BATCH: Final = 200
LATE: Final = 2 * records.DAY
"""Seconds behind the last page from which new keys are listed. A key tells when its page ends."""
LIST_WHOLE_EVERY: Final = 7 * records.DAY
"""Seconds after which all keys are listed: a head that lost its state writes old times anew."""


@dataclass(frozen=True, slots=True)
class Source:
    """The bucket of one cluster's records."""

    s3: S3Client
    bucket: str
    cluster: str
    region: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The outcome of a reading. S3 bills its calls."""

    lists: int = 0
    pages: int = 0
    attempts: int = 0  # rows
    set_aside: tuple[SetAside, ...] = ()


@dataclass(slots=True)
class _Batch:
    """The rows of some pages."""

    rows: dict[str, list[tuple[object, ...]]] = field(default_factory=lambda: defaultdict(list))
    set_aside: dict[str, list[SetAside]] = field(default_factory=lambda: defaultdict(list))
    price_types: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_new(
    store: ClusterStore, source: Source, now: int, *, whole: bool = False, dry_run: bool = False
) -> ReadResult:
    """Read all pages that are new. Raises ClientError and UsageStoreError.

    It may be killed at any time, and repeated.
    """
    files = store.records()
    is_whole = whole or files.listed_whole + LIST_WHOLE_EVERY <= now
    keys, lists = _new_keys(store, source, files, is_whole=is_whole)
    result = ReadResult(lists=lists, pages=len(keys))
    if dry_run:
        return result
    with store.working() as work:
        for start in range(0, len(keys), PAGES_A_BATCH):
            batch_keys = keys[start : start + PAGES_A_BATCH]
            read = _read_batch(store, source, batch_keys, work)
            result = replace(
                result,
                attempts=result.attempts + read.attempts,
                set_aside=(*result.set_aside, *read.set_aside),
            )
        if is_whole:
            store.commit_records(replace(store.records(), listed_whole=now))
    return result


def _new_keys(
    store: ClusterStore, source: Source, files: RecordFiles, *, is_whole: bool
) -> tuple[list[RecordKey], int]:
    """Return the keys that were not read, and the number of calls."""
    reaches = {records.SACCT: files.sacct_until, records.INSTANCES: files.instances_until}
    price_days = (name.partition("/")[2] for name in files.price_types)
    last_days = {
        f"{records.PRICES}{source.region}/": max(price_days, default=None),
        records.METRICS: max(files.metrics, default=None),
    }
    found: list[RecordKey] = []
    lists = 0
    for prefix in (*reaches, *last_days):
        after = prefix
        reach, last_day = reaches.get(prefix), last_days.get(prefix)
        if not is_whole and reach is not None:
            after = f"{prefix}{records.stamp(max(reach - LATE, 0))}"
        elif not is_whole and last_day is not None:
            after = f"{prefix}{records.day_stamp(_second(last_day) - LATE)}"
        pages = source.s3.get_paginator("list_objects_v2").paginate(
            Bucket=source.bucket, Prefix=prefix, StartAfter=after
        )
        for page in pages:
            lists += 1
            names = [item["Key"] for item in page.get("Contents", [])]
            found += filter(None, map(records.parse_key, names))
    read_by_day: dict[str, frozenset[str]] = {}
    new = []
    for key in found:
        day = databases.day(key.until)
        if day not in read_by_day:
            read_by_day[day] = frozenset(
                name for name, page in store.pages(day).items() if not page.is_refused
            )
        if key.key not in read_by_day[day]:
            new.append(key)
    return new, lists


def _read_batch(
    store: ClusterStore, source: Source, keys: Sequence[RecordKey], work: Work
) -> ReadResult:
    known = {
        name for day in {databases.day(key.until) for key in keys} for name in store.pages(day)
    }
    pages, damaged = read_pages(source.s3, source.bucket, keys, refused_before=known)
    batch = _Batch()
    for item in damaged:
        batch.set_aside[item.name].append(item)
    _add_attempts(batch, [page for page in pages if page.kind == "sacct"], source.cluster)
    _add_instances(batch, [page for page in pages if page.kind == "instances"])
    for page in pages:
        if page.kind == "prices":
            _add_prices(batch, page)
        elif page.kind == "metrics":
            _add_metrics(batch, page)
        elif page.kind not in {"sacct", "instances"}:
            batch.set_aside[page.key].append(SetAside(page.key, DAMAGED))
    files = _merged(store, batch, keys, work)
    store.commit_records(files)
    by_day: dict[str, list[ReadPage]] = defaultdict(list)
    for key in keys:
        by_day[databases.day(key.until)].append(ReadPage(key.key, tuple(batch.set_aside[key.key])))
    for day, read in by_day.items():
        store.add_pages(day, read)
    set_aside = tuple(item for items in batch.set_aside.values() for item in items)
    return ReadResult(attempts=len(batch.rows["attempts"]), set_aside=set_aside)


def _add_attempts(batch: _Batch, pages: Sequence[Page], cluster: str) -> None:
    """Add the last row of each attempt of these pages."""
    latest: dict[tuple[int, str, int | None], tuple[Attempt, Page]] = {}
    for page in sorted(pages, key=lambda item: (item.written, item.until)):
        content = parse_attempts(page, cluster)
        batch.set_aside[page.key] += content.set_aside
        for attempt in content.attempts:
            identity = (attempt.key, attempt.job_id, attempt.submitted)
            known = latest.get(identity)
            if known is None or attempt.ended is not None or known[0].ended is None:
                latest[identity] = (attempt, page)
    for attempt, page in latest.values():
        row = attempt_row(cluster, attempt, page.written, page.key)
        if isinstance(row, SetAside):
            batch.set_aside[page.key].append(row)
        else:
            batch.rows["attempts"].append(row)


def _add_instances(batch: _Batch, pages: Iterable[Page]) -> None:
    """Add the last line of each text.

    What lives on is in each page.
    """
    known: dict[str, tuple[Instance, RecordedLine]] = {}
    for line in instance_lines(pages):
        name = f"{line.key} line {line.number}"
        try:
            instance, last = known.get(line.text) or (ledger.parse(line.text, name), line)
        except LedgerError:
            batch.set_aside[line.key].append(SetAside(name, "no record of an instance"))
            continue
        known[line.text] = instance, max(last, line, key=attrgetter("written", "key", "number"))
    batch.rows["instances"] += [
        (
            instance.instance_id, instance.launched, instance.ended, text, line.number,
            line.written, line.key,
        )
        for text, (instance, line) in known.items()
    ]  # fmt: skip


def _add_prices(batch: _Batch, page: Page) -> None:
    region = str(page.header.get("region", ""))
    try:
        points = list(page.points())
    except ValueError:
        batch.set_aside[page.key].append(SetAside(page.key, DAMAGED))
        return
    batch.rows["prices"] += [(region, page.since, *point) for point in points]
    batch.price_types[f"{region}/{databases.day(page.since)}"] = page.types


def _add_metrics(batch: _Batch, page: Page) -> None:
    try:
        rows = metrics.rows_of(page)
    except ValueError:
        batch.set_aside[page.key].append(SetAside(page.key, DAMAGED))
        return
    batch.rows["metrics"] += [(*row, page.written, page.key) for row in rows]


def _merged(
    store: ClusterStore, batch: _Batch, keys: Sequence[RecordKey], work: Work
) -> RecordFiles:
    """Write the days that a batch changes; returns the valid files."""
    files = store.records()
    days: dict[str, Mapping[str, Day]] = {}
    changed = [] if files.changed_from is None else [files.changed_from]
    for table in (ATTEMPTS, INSTANCES, PRICES, METRICS):
        known, rows = getattr(files, table.name), batch.rows[table.name]
        days[table.name] = known
        if rows:
            work.database.table(f"read_{table.name}", table.columns, list(rows))
            days[table.name], first = _merged_days(store, table, known, files.batches + 1, work)
            changed += [] if first is None else [first]
            work.database.run(f"DROP TABLE read_{table.name}")

    def reach(prefix: str, known: int | None) -> int | None:
        own = [key.until for key in keys if key.key.startswith(prefix)]
        return max([*own, *([] if known is None else [known])], default=None)

    return replace(
        files,
        batches=files.batches + 1,
        attempts=days[ATTEMPTS.name],
        instances=days[INSTANCES.name],
        prices=days[PRICES.name],
        metrics=days[METRICS.name],
        price_types={**files.price_types, **batch.price_types},
        sacct_until=reach(records.SACCT, files.sacct_until),
        instances_until=reach(records.INSTANCES, files.instances_until),
        changed_from=min(changed, default=None),
    )


def _merged_days(
    store: ClusterStore, table: Table, known: Mapping[str, Day], number: int, work: Work
) -> tuple[Mapping[str, Day], int | None]:
    """Write the days of the rows that were read; returns all days.

    With them comes the first second that the rows change. None: they change none.
    """
    own = days_of_rows(work.database, table)
    stored = [known[day] for day in own if day in known]
    first = record_changes.first_change(work.database, store, table, stored)
    merged = merge(
        work.database, store.folder, table, known, own, temporary=work.temporary, name=str(number)
    )
    return merged, first


def _second(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
