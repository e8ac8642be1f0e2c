"""The store of one's own cluster: its records in Parquet by day, and its closed days.

    records.json           the files that are valid, and how far the records reach
    attempts/day=…/        the last row of each attempt, by day of submission
    instances/day=…/       the last record of each instance, by day of launch
    prices/day=…/          changes of spot prices
    metrics/day=…/         bytes stored in S3 and through the NAT gateway
    pages/DAY.json         the pages that were read, and what was set aside of them
    closed.json            the closed days
    closed/day=…/          their charges
    closed-months/…/       their sums by month, which can be made again
    origin.json            whose records these are (`origin.py`)

A change writes new files, then replaces a JSON file at once. Whoever is killed before that has
changed nothing that counts.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from slurmplugins.system.files import write_atomically
from toolkit.accounting.set_aside import SetAside
from toolkit.usage import database as databases
from toolkit.usage.errors import StoreUnreadable
from toolkit.usage.lazy_mapping import DAMAGES, LazyMapping
from toolkit.usage.store import Day, StoreFolder, default_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from toolkit.usage.database import Database

VERSION = 2
CLUSTERS = "clusters"
_TABLES = ("attempts", "instances", "prices", "metrics")
_DAY = tuple(entry.name for entry in fields(Day))


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """The valid files of records, and how far the pages reach."""

    batches: int = 0
    attempts: Mapping[str, Day] = field(default_factory=dict)
    instances: Mapping[str, Day] = field(default_factory=dict)
    prices: Mapping[str, Day] = field(default_factory=dict)
    metrics: Mapping[str, Day] = field(default_factory=dict)
    price_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The types that a day of prices has, by `us-east-1/2026-11-21`."""
    sacct_until: int | None = None
    instances_until: int | None = None
    listed_whole: int = 0
    """The second at which all keys of the bucket were listed."""
    changed_from: int | None = None
    """The first second of what changed since the last closing; None: nothing did."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page that was read."""

    key: str
    set_aside: tuple[SetAside, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Return whether S3 refused it, so it is to be read again."""
        return any(item.is_refused for item in self.set_aside)


@dataclass(frozen=True, slots=True)
class Work:
    """The database and the folder that a change of the store works with."""

    database: Database
    temporary: Path  # a folder


class ClusterStore(StoreFolder):
    """The folder of one cluster's store."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._records: tuple[tuple[int, int, int], RecordFiles] | None = None
        """The files as they were read last: a run asks for them again and again."""
        self._work: Work | None = None

    @contextmanager
    def working(self) -> Iterator[Work]:
        """Hold the store's lock, with an open database.

        Within another block it is that one's: to open a database takes longer than most queries.
        Raises StoreUnreadable, and UsageStoreError for any failure of DuckDB.
        """
        if self._work is not None:
            yield self._work
            return
        with self.changing() as temporary, databases.opened(temporary, threads=1) as database:
            database.open_meanwhile()
            self._work = Work(database, temporary)
            try:
                yield self._work
            finally:
                self._work = None

    @property
    def records_file(self) -> Path:
        """Return the file that names the records' files."""
        return self.folder / "records.json"

    def records(self) -> RecordFiles:
        """Return the files of records; none where there is no store yet.

        Raises StoreUnreadable.
        """
        try:
            found = self.records_file.stat()
        except FileNotFoundError:
            return RecordFiles()
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._records is None or self._records[0] != version:
            self._records = (version, self._parsed_records())
        return self._records[1]

    def _parsed_records(self) -> RecordFiles:
        data = self.read_json(self.records_file)
        if data is None:
            return RecordFiles()
        try:
            return _record_files(data, self.records_file)
        except DAMAGES as error:
            raise _damaged(self.records_file) from error

    def commit_records(self, files: RecordFiles) -> None:
        """Replace the names of the records' files, then remove others.

        Only days that changed can have them, so an old store costs what a young one does.
        """
        known = self.records()
        # `asdict` would copy each of thousands of days.
        content = {entry.name: getattr(files, entry.name) for entry in fields(files)}
        content["price_types"] = dict(files.price_types)
        for name in _TABLES:
            days = getattr(files, name)
            content[name] = {
                day: {entry: getattr(item, entry) for entry in _DAY} for day, item in days.items()
            }
        self.write_json(self.records_file, content)
        for name in _TABLES:
            before, after = getattr(known, name), getattr(files, name)
            for day, item in after.items():
                if item != before.get(day):
                    self.remove_others(f"{name}/day={day}", item.files)

    def pages(self, day: str) -> dict[str, ReadPage]:
        """Return the pages that end on a day, by key. Raises StoreUnreadable."""
        path = self._pages_file(day)
        data = self.read_json(path)
        try:
            return {
                key: ReadPage(key, tuple(SetAside(*item) for item in items))
                for key, items in (data or {}).get("pages", {}).items()
            }
        except (ValueError, TypeError, AttributeError) as error:
            raise _damaged(path) from error

    def page_days(self) -> list[str]:
        """Return the days that have pages."""
        return sorted(path.stem for path in self.folder.glob("pages/*.json"))

    def add_pages(self, day: str, pages: Iterable[ReadPage]) -> None:
        """Write down that these pages were read."""
        known = self.pages(day) | {page.key: page for page in pages}
        content = {
            key: [(item.name, item.reason, item.has_unknown_cost) for item in page.set_aside]
            for key, page in sorted(known.items())
        }
        self._pages_file(day).parent.mkdir(exist_ok=True)
        self.write_json(self._pages_file(day), {"pages": content})

    def _pages_file(self, day: str) -> Path:
        return self.folder / "pages" / f"{day}.json"

    def read_json(self, path: Path) -> dict[str, Any] | None:
        """Return a file's content of this version; None without a file."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnreadable(f"can't read {path}: {error.strerror}") from error
        except ValueError as error:
            raise _damaged(path) from error
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise _damaged(path)
        return data

    def write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        """Replace a file at once."""
        text = json.dumps({"version": VERSION, **content})
        write_atomically(path, text.encode(), mode=0o644)


def cluster_folder(cluster: str, root: Path | None = None) -> Path:
    """Return the folder of a cluster's store."""
    return (root or default_folder()) / CLUSTERS / cluster


def known_clusters(root: Path) -> list[str]:
    """Return the clusters that have a store."""
    return sorted(path.parent.name for path in root.glob(f"{CLUSTERS}/*/records.json"))


def _damaged(path: Path) -> StoreUnreadable:
    return StoreUnreadable(
        f"{path} is no file of a store of version {VERSION}",
        next_step="bring the store back from a copy. A store of an earlier toolkit, or one without"
        " closed days: move its folder away, then `toolkit usage close --all-pages`",
    )


def _record_files(data: Mapping[str, Any], path: Path) -> RecordFiles:
    damaged = partial(_damaged, path)
    types = LazyMapping(dict(data["price_types"]), tuple, damaged)
    # An earlier toolkit wrote no metrics.
    tables = {name: LazyMapping(dict(data.get(name, {})), _day, damaged) for name in _TABLES}
    return RecordFiles(**{**data, **tables, "price_types": types})


def _day(item: Mapping[str, Any]) -> Day:
    return Day(tuple(item["files"]), item["attempts"], item["first_start"], item["last_end"])
