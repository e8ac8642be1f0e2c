"""Reads the records in the bucket of backups: pages of sacct, of instances, days of prices.

docs/adr/0037-records-that-outlive-the-cluster.md has the format. A prefix is listed from the
report's first second on, so old records cost nothing. An object that can't be read, or whose hash
is not that of its key, is set aside.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slurmplugins.model import records
from toolkit.accounting import sacct
from toolkit.accounting.errors import SacctError
from toolkit.accounting.set_aside import SetAside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_s3 import S3Client

    from slurmplugins.model.records import RecordKey
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.sacct import SacctContent

LOOK_AHEAD = 100 * 86_400
"""Seconds after a report in which the ends of its attempts are looked for."""
_READERS = 8


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of one cluster. Either may be gone."""

    s3: S3Client
    own: str
    records: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The keys that a report needs, and how far all keys reach."""

    keys: tuple[RecordKey, ...] = ()  # oldest first
    reach: int | None = None  # the last second of the last page that was listed; None: no page


@dataclass(frozen=True, slots=True)
class Page:
    """An object with records. Times are epoch seconds."""

    key: str
    kind: str  # sacct, instances or prices
    cluster: str
    since: int
    until: int
    written: int
    content: str = field(repr=False)
    header: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields of a row of sacct."""
        return tuple(map(str, self.header.get("fields", ())))

    @property
    def delimiter(self) -> str:
        """Return the text between two fields of sacct."""
        return str(self.header.get("delimiter", ""))

    def rows(self) -> list[dict[str, str]]:
        """Return sacct's rows. Raises SacctError."""
        return sacct.rows(self.content, self.fields, self.delimiter[1:-1])

    def lines(self) -> list[Any]:
        """Return the JSON values of another page, one a line. Raises ValueError."""
        return [json.loads(line) for line in self.content.splitlines()]


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
    s3: S3Client, bucket: str, keys: Sequence[RecordKey]
) -> tuple[list[Page], list[SetAside]]:
    """Return the pages of these keys, in their order.

    The objects that are none come beside them.
    """

    def fetch(key: RecordKey) -> bytes:
        return s3.get_object(Bucket=bucket, Key=key.key)["Body"].read()

    pages, set_aside = [], []
    with ThreadPoolExecutor(_READERS) as pool:
        for key, body in zip(keys, pool.map(fetch, keys), strict=True):
            page = parse_page(key, body)
            if page is None:
                set_aside.append(SetAside(key.key, "a page of records that is damaged"))
            else:
                pages.append(page)
    return pages, set_aside


def parse_page(key: RecordKey, body: bytes) -> Page | None:
    """Read an object; None if it is not what was written."""
    if records.digest(body) != key.digest:
        return None
    try:
        header, content = records.unpack(body)
        times = (int(header["since"]), int(header["until"]), int(header["written"]))
        page = Page(key.key, str(header["kind"]), str(header["cluster"]), *times, content, header)
    except (ValueError, KeyError, TypeError):
        return None
    return page


def attempts_of(pages: Iterable[Page], *newer: SacctContent, cluster: str = "") -> SacctContent:
    """Return the attempts of pages and of later answers.

    Rows of other clusters are set aside, if the cluster is given.

    A row with an end wins over one without, and else the later. Two attempts may have one
    DBIndex: a restored database counts on from the backup. Each is counted, the older under
    a number that no database gives.
    """
    latest: dict[tuple[int, str, int | None], Attempt] = {}
    set_aside: list[SetAside] = []
    ordered_pages = sorted(pages, key=lambda page: (page.written, page.until))
    contents = [*(_content(page, cluster) for page in ordered_pages), *newer]
    for content in contents:
        set_aside += content.set_aside
        for attempt in content.attempts:
            identity = (attempt.key, attempt.job_id, attempt.submitted)
            if attempt.ended is None and identity in latest and latest[identity].ended is not None:
                continue
            latest.pop(identity, None)
            latest[identity] = attempt
    return sacct.SacctContent(tuple(_with_own_keys(latest.values())), tuple(set_aside))


def _with_own_keys(attempts: Iterable[Attempt]) -> list[Attempt]:
    by_key: dict[int, Attempt] = {}
    older = []
    for attempt in attempts:
        if attempt.key in by_key:
            older.append(by_key[attempt.key])
        by_key[attempt.key] = attempt
    free_key = max(by_key, default=0)
    renamed = [
        replace(attempt, key=free_key + number) for number, attempt in enumerate(older, start=1)
    ]
    every = [*by_key.values(), *renamed]
    return sorted(every, key=lambda attempt: (attempt.submitted or 0, attempt.key))


def _content(page: Page, cluster: str) -> SacctContent:
    try:
        content = sacct.parse(page.content, page.fields, page.delimiter[1:-1], cluster=cluster)
    except SacctError as error:
        aside = SetAside(page.key, f"a page of sacct that can't be read: {error.message}")
        return sacct.SacctContent((), (aside,))
    return content
