"""Rows that were read, merged into the days of a store: each thing has one row, the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.accounting.days import DAY
from toolkit.usage.database import quoted
from toolkit.usage.dump_columns import COLUMNS
from toolkit.usage.store import Day, rows_with_new_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from toolkit.usage.database import Database
    from toolkit.usage.store import Manifest, Store

_FEW_ROWS = 50_000
"""So many are sorted sooner than counted."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a store, in Parquet by day. The texts are SQL on its columns."""

    name: str  # of the folder, and of what was read: `read_NAME`
    columns: Sequence[tuple[str, str]]
    key: str
    """The columns that two rows of one thing have in common."""
    order: str
    """The best row first."""
    second: str
    """The second whose day the row is in. It never changes."""
    first: str
    last: str
    """The first and the last second of all rows of a day; NULL: there is no end."""

    @property
    def names(self) -> str:
        """Return the columns' names."""
        return ", ".join(name for name, _ in self.columns)

    @property
    def day(self) -> str:
        """Return the expression of the day's number.

        A text of each row takes longer.
        """
        return f"{self.second} // {DAY}"


def days_of_rows(database: Database, table: Table) -> list[str]:
    """Return the days of the rows that were read."""
    days = f"SELECT DISTINCT {table.day} AS day FROM read_{table.name}"  # noqa: S608  # our own text
    return [day for (day,) in database.rows(f"SELECT {_text('day')} FROM ({days})")]  # noqa: S608


def _text(day: str) -> str:
    """Return the expression of a folder's day, of the day's number."""
    return f"strftime(make_timestamp({day} * {DAY} * 1000000), '%Y-%m-%d')"


# A restored database counts its DBIndexes on from the backup, so one of them may be two attempts.
DUMPED_ATTEMPTS = Table(
    "attempts",
    COLUMNS,
    key="""cluster, db_index, job_id, coalesce(submitted, started),
        CASE WHEN db_index IS NULL THEN restarts END""",
    order="ended IS NOT NULL DESC, import_number DESC, line DESC",
    second="coalesce(submitted, started)",
    first="min(started)",
    last="""CASE WHEN bool_or(started IS NOT NULL AND ended IS NULL) THEN NULL
        ELSE max(ended) END""",
)


def merged(
    database: Database, store: Store, manifest: Manifest, temporary: Path, name: str
) -> Manifest:
    """Write the days that `read_attempts` changes; returns the manifest that names them.

    Of two rows of one attempt, the one with an end wins, then the one that was read later.
    """
    changed = days_of_rows(database, DUMPED_ATTEMPTS)
    days = merge(
        database,
        store.folder,
        DUMPED_ATTEMPTS,
        manifest.days,
        changed,
        temporary=temporary,
        name=name,
    )
    ends = database.value("SELECT max(greatest(submitted, started, ended)) FROM read_attempts")
    return replace(manifest, days=days, known_until=max(manifest.known_until, ends or 0))


def merge(
    database: Database,
    folder: Path,
    table: Table,
    days: Mapping[str, Day],
    changed: Sequence[str],
    *,
    temporary: Path,
    name: str,
) -> dict[str, Day]:
    """Write the days that the table `read_NAME` changes; returns all days.

    `changed` are the days of its rows.
    """
    day, read = table.day, f"read_{table.name}"
    if not changed:
        return dict(days)
    files = [file for found in changed if found in days for file in days[found].files]
    # A union with no rows would make text of what is an ENUM, which takes longer to write.
    sources = [read, rows_with_new_columns(folder, files, table.columns)] if files else [read]
    rows = " UNION ALL ".join(f"SELECT {table.names}, {day} AS day FROM {item}" for item in sources)  # noqa: S608  # our own text
    database.run(f"CREATE OR REPLACE TEMP VIEW all_rows AS {rows}")
    target = temporary / f"{table.name}-{name}"
    database.run(
        f"""COPY (SELECT * FROM all_rows {_best(database, table)}) TO {quoted(str(target))}
        (FORMAT parquet, PARTITION_BY (day),
        FILENAME_PATTERN {quoted(name + "-{i}")})"""  # noqa: S608
    )
    return dict(days) | _moved(database, folder, table, target)


def _best(database: Database, table: Table) -> str:
    """Return the filter that leaves one row of each key.

    It is empty where no key is there twice, of many rows: sorting these would cost more than all
    the rest.
    """
    if database.value("SELECT count(*) FROM all_rows") > _FEW_ROWS:
        rows, keys = database.row(
            f"SELECT count(*), count(DISTINCT hash(concat_ws('|', {table.key}))) FROM all_rows"  # noqa: S608
        )
        if rows == keys:
            return ""
    return f"""QUALIFY row_number() OVER (PARTITION BY {table.key} ORDER BY {table.order}) = 1"""


def _moved(database: Database, folder: Path, table: Table, target: Path) -> dict[str, Day]:
    """Move the written files into the store; returns their days."""
    facts = database.rows(
        f"""SELECT parse_filename(parse_dirpath(filename)) AS day_folder,
            {_text("replace(day_folder, 'day=', '')::BIGINT")}, count(*), {table.first},
            {table.last}
        FROM read_parquet({quoted(str(target / "*" / "*.parquet"))}, hive_partitioning=false,
        filename=true) GROUP BY day_folder"""  # noqa: S608
    )
    days = {}
    for name, day, rows, first, last in facts:
        place = folder / table.name / f"day={day}"
        place.mkdir(parents=True, exist_ok=True)
        files = []
        for path in sorted((target / name).iterdir()):
            path.replace(place / path.name)
            files.append(f"{table.name}/{place.name}/{path.name}")
        days[day] = Day(tuple(files), rows, first, last)
    return days
