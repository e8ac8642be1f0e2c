"""Reads records in the bucket of backups: pages of sacct and instances, days of prices, metrics.

docs/adr/0037-records-that-outlive-the-cluster.md has the format. A prefix is listed from the
report's first second on, so old records cost nothing. An object that can't be read, or whose hash
is not that of its key, is set aside.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from slurmplugins.model import json_input, records
from toolkit.accounting import metrics, objects, sacct
from toolkit.accounting.attempts import own_key
from toolkit.accounting.errors import SacctError
from toolkit.accounting.set_aside import SetAside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_s3 import S3Client

    from slurmplugins.model.records import RecordKey
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.metrics import MetricRow
    from toolkit.accounting.sacct import SacctContent

LOOK_AHEAD = 100 * 86_400
"""Seconds after a report in which the ends of its attempts are looked for."""
DAMAGED = "a page of records that is damaged"

PricePoint = tuple[str, str, int, str]
"""An instance type, a zone, the second of a change, and US dollars as text."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of one cluster. Either may be gone."""

    s3: S3Client
    own: str
    records: str


@dataclass(frozen=True, slots=True)
class RecordedAttempts:
    """The attempts of records that a report may need, and how far all records reach."""

    content: SacctContent  # two attempts may have one DBIndex
    reach: int | None  # None: there are none


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """A line of a page of instances."""

    text: str
    key: str
    number: int  # within its page
    written: int


@dataclass(frozen=True, slots=True)
class RecordedInstances:
    """The lines of pages of instances that a report may need, in the order of their writing."""

    lines: tuple[RecordedLine, ...]
    set_aside: tuple[SetAside, ...]
    reach: int | None


@dataclass(frozen=True, slots=True)
class RecordedPrices:
    """Changes of spot prices, and the days that are stored of each type."""

    points: tuple[PricePoint, ...]
    days: Mapping[str, frozenset[int]]
    set_aside: tuple[SetAside, ...]


@dataclass(frozen=True, slots=True)
class RecordedMetrics:
    """The bytes that CloudWatch measured of days.

    Of two rows of one thing the first counts.
    """

    rows: tuple[MetricRow, ...]
    set_aside: tuple[SetAside, ...]


class Records(Protocol):
    """Records, as a report reads them. Times are epoch seconds."""

    def attempts(self, cluster: str, since: int, until: int) -> RecordedAttempts:
        """Return the attempts that a report of since … until may need."""

    def instances(self, since: int, until: int) -> RecordedInstances:
        """Return the lines that a report of since … until may need."""

    def prices(self, region: str, types: Collection[str], since: int, until: int) -> RecordedPrices:
        """Return the stored prices of these types."""

    def metrics(self, since: int, until: int) -> RecordedMetrics:
        """Return what was measured of the days from since to until."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The keys that a report needs, and how far all keys reach."""

    keys: tuple[RecordKey, ...] = ()  # oldest first
    reach: int | None = None  # the last second of the last page that was listed; None: no page


@dataclass(frozen=True, slots=True)
class Page:
    """An object with records. Times are epoch seconds."""

    key: str
    kind: str  # sacct, instances, prices or metrics
    cluster: str
    since: int
    until: int
    written: int
    content: str = field(repr=False)
    header: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields of a row of sacct."""
        return self.names("fields")

    @property
    def delimiter(self) -> str:
        """Return the text between two fields of sacct."""
        return str(self.header.get("delimiter", ""))

    def rows(self) -> list[dict[str, str]]:
        """Return sacct's rows. Raises SacctError."""
        return sacct.rows(self.content, self.fields, self.delimiter[1:-1])

    @property
    def types(self) -> tuple[str, ...]:
        """Return the instance types of a day of prices."""
        return self.names("types")

    def points(self) -> Iterator[PricePoint]:
        """Yield the price changes of a day of prices. Raises ValueError."""
        for line in self.content.splitlines():
            match json_input.loads(line):
                case [str(instance_type), str(zone), int(second), str(usd)] if (
                    0 <= second < sacct.LATEST_SECOND
                ):
                    yield instance_type, zone, second, usd
                case _:
                    raise ValueError("a line is no price")

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of names in the first line."""
        names = self.header.get(key)
        return tuple(map(str, names)) if isinstance(names, list) else ()


class RecordsInS3:
    """The records in their bucket."""

    def __init__(self, buckets: Buckets) -> None:
        self._s3, self._bucket = buckets.s3, buckets.records

    def attempts(self, cluster: str, since: int, until: int) -> RecordedAttempts:
        """Return the attempts that a report of since … until may need."""
        listing = list_pages(self._s3, self._bucket, records.SACCT, since, until)
        pages, damaged = read_pages(self._s3, self._bucket, listing.keys)
        content = latest_of(_parsed(pages, cluster))
        content = replace(content, set_aside=(*damaged, *content.set_aside))
        return RecordedAttempts(content, listing.reach)

    def instances(self, since: int, until: int) -> RecordedInstances:
        """Return the lines that a report of since … until may need."""
        listing = list_pages(self._s3, self._bucket, records.INSTANCES, since, until)
        pages, damaged = read_pages(self._s3, self._bucket, listing.keys)
        return RecordedInstances(tuple(instance_lines(pages)), tuple(damaged), listing.reach)

    def prices(self, region: str, types: Collection[str], since: int, until: int) -> RecordedPrices:
        """Return the stored prices of these types."""
        prefix = f"{records.PRICES}{region}/"
        keys = list_days(self._s3, self._bucket, prefix, since, until)
        pages, damaged = read_pages(self._s3, self._bucket, keys)
        days: dict[str, set[int]] = {name: set() for name in types}
        points: list[PricePoint] = []
        for page in pages:
            try:
                points += [point for point in page.points() if point[0] in days]
            except ValueError:
                damaged.append(SetAside(page.key, DAMAGED))
                continue
            for name in days.keys() & set(page.types):
                days[name].add(page.since)
        return RecordedPrices(
            tuple(points), {name: frozenset(own) for name, own in days.items()}, tuple(damaged)
        )

    def metrics(self, since: int, until: int) -> RecordedMetrics:
        """Return what was measured of the days from since to until."""
        keys = list_days(self._s3, self._bucket, records.METRICS, since, until)
        pages, damaged = read_pages(self._s3, self._bucket, keys)
        rows: list[MetricRow] = []
        for page in sorted(pages, key=lambda item: (item.written, item.key)):
            try:
                rows += metrics.rows_of(page)
            except ValueError:
                damaged.append(SetAside(page.key, DAMAGED))
        return RecordedMetrics(tuple(rows), tuple(damaged))


def instance_lines(pages: Iterable[Page]) -> Iterator[RecordedLine]:
    """Yield the lines of pages, in the order of their writing."""
    for page in sorted(pages, key=lambda item: (item.written, item.until)):
        for number, line in enumerate(page.content.splitlines(), start=1):
            yield RecordedLine(line, page.key, number, page.written)


def list_days(s3: S3Client, bucket: str, prefix: str, since: int, until: int) -> list[RecordKey]:
    """Return the keys of a kind that has an object a day."""
    if not bucket:
        return []
    day = records.day_stamp(since - since % records.DAY)
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, StartAfter=f"{prefix}{day}"
    )
    keys = []
    try:
        for page in pages:
            names = [item["Key"] for item in page.get("Contents", [])]
            found = [key for name in names if (key := records.parse_key(name)) is not None]
            keys += [key for key in found if key.since < until]
            if found and found[-1].since >= until:
                break
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    return keys


def list_pages(s3: S3Client, bucket: str, prefix: str, since: int, until: int) -> Listing:
    """Return the keys that a report of since … until may need.

    There are none where the bucket does not exist.
    """
    keys: list[RecordKey] = []
    reach = None
    if not bucket:
        return Listing()
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, StartAfter=f"{prefix}{records.stamp(max(since, 0))}"
    )
    try:
        for page in pages:
            names = [item["Key"] for item in page.get("Contents", [])]
            for key in filter(None, map(records.parse_key, names)):
                is_first_after = key.until >= until > (reach or 0)
                if is_first_after or key.concerns(since, until):
                    keys.append(key)
                reach = max(key.until, reach or 0)
            if reach is not None and reach > until + LOOK_AHEAD:
                break
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
        return Listing()
    return Listing(tuple(keys), reach)


def read_pages(
    s3: S3Client,
    bucket: str,
    keys: Sequence[RecordKey],
    *,
    refused_before: Collection[str] = (),
) -> tuple[list[Page], list[SetAside]]:
    """Return the pages of these keys, in their order.

    The objects that are none, or that S3 refuses, come beside them. Raises ClientError, also where
    S3 denies all but those that it refused before.
    """
    pages, set_aside = [], []
    names = [key.key for key in keys]
    bodies = objects.fetched(s3, bucket, names, refused_before=refused_before)
    for key, body in zip(keys, bodies, strict=True):
        if isinstance(body, objects.Refusal):
            set_aside.append(body.set_aside(key.key))
            continue
        page = parse_page(key, body)
        if page is None:
            set_aside.append(SetAside(key.key, DAMAGED))
        else:
            pages.append(page)
    return pages, set_aside


def parse_page(key: RecordKey, body: bytes) -> Page | None:
    """Read an object; None if it is not what was written."""
    if records.digest(body) != key.digest:
        return None
    try:
        header, content = records.unpack(body)
        times = (_second(header["since"]), _second(header["until"]), _second(header["written"]))
        page = Page(key.key, str(header["kind"]), str(header["cluster"]), *times, content, header)
    except (ValueError, KeyError):
        return None
    return page


def _second(value: object) -> int:
    """Return epoch seconds. Raises ValueError."""
    second = json_input.finite(value)
    if not 0 <= second < sacct.LATEST_SECOND:
        raise ValueError("no time")
    return int(second)


def attempts_of(pages: Iterable[Page]) -> SacctContent:
    """Return the attempts of pages, of any cluster."""
    return with_newer(*_parsed(pages, ""))


def _parsed(pages: Iterable[Page], cluster: str) -> Iterator[SacctContent]:
    for page in sorted(pages, key=lambda item: (item.written, item.until)):
        yield parse_attempts(page, cluster)


def with_newer(*contents: SacctContent) -> SacctContent:
    """Return the attempts of answers, each with a key of its own.

    The oldest answer comes first. Two attempts may have one DBIndex: a restored database counts
    on from the backup. Each is counted, the older under a number that no database gives.
    """
    content = latest_of(contents)
    return replace(content, attempts=tuple(with_own_keys(content.attempts)))


def latest_of(contents: Iterable[SacctContent]) -> SacctContent:
    """Return the last row of each attempt, the oldest answer first.

    A row with an end wins over one without, and else the later.
    """
    latest: dict[tuple[int, str, int | None], Attempt] = {}
    set_aside: list[SetAside] = []
    for content in contents:
        set_aside += content.set_aside
        for attempt in content.attempts:
            identity = (attempt.key, attempt.job_id, attempt.submitted)
            if attempt.ended is None and identity in latest and latest[identity].ended is not None:
                continue
            latest.pop(identity, None)
            latest[identity] = attempt
    return sacct.SacctContent(tuple(latest.values()), tuple(set_aside))


def with_own_keys(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts by submission, each with a key of its own.

    Of two with one DBIndex the later in the list keeps it.
    """
    by_key: dict[int, Attempt] = {}
    older = []
    for attempt in attempts:
        if attempt.key in by_key:
            older.append(by_key[attempt.key])
        by_key[attempt.key] = attempt
    renamed = [replace(attempt, key=own_key(attempt)) for attempt in older]
    every = [*by_key.values(), *renamed]
    return sorted(every, key=lambda attempt: (attempt.submitted or 0, attempt.key))


def parse_attempts(page: Page, cluster: str) -> SacctContent:
    """Return the attempts of one page; a damaged one is set aside."""
    try:
        content = sacct.parse(page.content, page.fields, page.delimiter[1:-1], cluster=cluster)
    except SacctError as error:
        aside = SetAside(page.key, f"a page of sacct that can't be read: {error.message}")
        return sacct.SacctContent((), (aside,))
    return content
