"""The store: Parquet files by day of submission, and one manifest that names them.

A change writes new files, then replaces the manifest at once. Whoever is killed before that has
changed nothing; the next change removes what no manifest names. An attempt's submission never
changes, so a later row of it meets the earlier one in the same day.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplugins.system.files import locked, write_atomically
from toolkit.usage.database import quoted
from toolkit.usage.errors import StoreUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.usage.database import Database
    from toolkit.usage.dump_text import BadLine

VERSION = 3
FOLDER_VARIABLE = "TOOLKIT_USAGE_STORE"


@dataclass(frozen=True, slots=True)
class Day:
    """The attempts that were submitted on one day."""

    files: tuple[str, ...]
    attempts: int
    first_start: int | None  # None: none of them started
    last_end: int | None  # None: one of them has no end


@dataclass(frozen=True, slots=True)
class Import:
    """A file that was read, or is being read."""

    number: int
    name: str
    sha256: str
    last_line: int  # read so far
    complete: bool
    attempts: int  # rows read; a repeated row counts
    steps: int
    bad_lines: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a store."""

    days: Mapping[str, Day] = field(default_factory=dict)  # by `2026-11-21`
    imports: tuple[Import, ...] = ()
    known_until: int = 0  # the latest second in the store

    @property
    def attempts(self) -> int:
        """Return the number of attempts."""
        return sum(day.attempts for day in self.days.values())

    def files(self, since: int, until: int) -> list[str]:
        """Return the files with attempts of since ≤ t < until.

        They may have others too."""
        return [
            file
            for day in self.days.values()
            if day.first_start is not None
            and day.first_start < until
            and (day.last_end is None or day.last_end >= since)
            for file in day.files
        ]


def default_folder() -> Path:
    """Return the store of this user: $TOOLKIT_USAGE_STORE, or the platform's data folder."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "slurm-ec2-toolkit" / "usage"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "slurm-ec2-toolkit" / "usage"


class StoreFolder:
    """A folder of Parquet files, which one program at a time changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def changing(self) -> Iterator[Path]:
        """Hold the store's lock; yields an empty folder for temporary files.

        Raises StoreUnreadable.
        """
        temporary = self.folder / "temporary"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / "lock"):
                shutil.rmtree(temporary, ignore_errors=True)  # of a program that was killed
                temporary.mkdir()
                try:
                    yield temporary
                finally:
                    shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise StoreUnreadable(f"can't write to {self.folder}: {error}") from error

    def remove_others(self, folder: str, named: Iterable[str]) -> None:
        """Remove a folder's Parquet files that nothing names; `*` is any folder."""
        known = frozenset(named)
        for path in self.folder.glob(f"{folder}/*.parquet"):
            if str(path.relative_to(self.folder)) not in known:
                path.unlink(missing_ok=True)


class Store(StoreFolder):
    """A store of dumps."""

    @property
    def manifest_file(self) -> Path:
        """Return the file that names all others."""
        return self.folder / "manifest.json"

    def manifest(self) -> Manifest:
        """Return the content; an empty one where there is no store yet.

        Raises StoreUnreadable.
        """
        try:
            text = self.manifest_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Manifest()
        except OSError as error:
            raise StoreUnreadable(f"can't read {self.manifest_file}: {error.strerror}") from error
        try:
            return _manifest(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreUnreadable(
                f"{self.manifest_file} is no manifest of version {VERSION}",
                next_step="import the dumps into an empty --store",
            ) from error

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest, then remove the files that it doesn't name."""
        content = {"version": VERSION, **asdict(manifest)}
        write_atomically(self.manifest_file, json.dumps(content).encode(), mode=0o644)
        named = {file for day in manifest.days.values() for file in day.files}
        self.remove_others("*/day=*", named)

    def keep_bad_lines(self, number: int, bad_lines: list[BadLine]) -> None:
        """Write an import's bad lines to its file.

        A repeated write changes nothing."""
        if not bad_lines:
            return
        path = self.bad_lines_file(number)
        path.parent.mkdir(exist_ok=True)
        kept = {line.line: line for line in (*self.bad_lines(number), *bad_lines)}
        text = "".join(json.dumps(kept[line]._asdict()) + "\n" for line in sorted(kept))
        write_atomically(path, text.encode(), mode=0o644)

    def bad_lines_file(self, number: int) -> Path:
        """Return the file of an import's bad lines."""
        return self.folder / "bad-lines" / f"{number}.jsonl"

    def bad_lines(self, number: int) -> list[BadLine]:
        """Return an import's bad lines."""
        from toolkit.usage.dump_text import BadLine

        path = self.bad_lines_file(number)
        if not path.exists():
            return []
        return [BadLine(**json.loads(line)) for line in path.read_text().splitlines()]

    def view(self, database: Database, files: list[str]) -> None:
        """Make the view `attempts` of some files of the store."""
        from toolkit.usage.dump_columns import COLUMNS  # a cluster's records have others

        source = rows_of(self.folder, files, COLUMNS)
        database.run(f"CREATE OR REPLACE TEMP VIEW attempts AS SELECT * FROM {source}")  # noqa: S608


def rows_of(folder: Path, files: Sequence[str], columns: Sequence[tuple[str, str]]) -> str:
    """Return the source of a query: the rows of some files.

    Without files it has no rows, and these columns."""
    if not files:
        names = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns)
        return f"(SELECT {names} LIMIT 0)"
    paths = ", ".join(quoted(str(folder / file)) for file in files)
    return f"read_parquet([{paths}], hive_partitioning=false)"


def rows_with_new_columns(
    folder: Path, files: Sequence[str], columns: Sequence[tuple[str, str]]
) -> str:
    """Return the rows of files; older ones may lack a column.

    What a file lacks is NULL.
    """
    if not files:
        return rows_of(folder, files, columns)
    paths = ", ".join(quoted(str(folder / file)) for file in files)
    read = f"read_parquet([{paths}], hive_partitioning=false, union_by_name=true)"
    return f"(FROM {rows_of(folder, (), columns)} UNION ALL BY NAME FROM {read})"


def _manifest(data: dict[str, Any]) -> Manifest:
    if data.pop("version") != VERSION:
        raise ValueError("another version")
    return Manifest(
        days={
            name: replace(Day(**day), files=tuple(day["files"]))
            for name, day in data["days"].items()
        },
        imports=tuple(Import(**item) for item in data["imports"]),
        known_until=int(data["known_until"]),
    )
