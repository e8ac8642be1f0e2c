"""Attempts that were read, merged into the days of the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.usage.database import quoted
from toolkit.usage.dump_columns import COLUMNS
from toolkit.usage.store import Day

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.usage.database import Database
    from toolkit.usage.store import Manifest, Store

_KEY = """cluster, db_index, CASE WHEN db_index IS NULL THEN job_id END,
    CASE WHEN db_index IS NULL THEN coalesce(submitted, started) END,
    CASE WHEN db_index IS NULL THEN restarts END"""
"""What makes two rows one attempt: its DBIndex, else job, submission and restarts."""

_NAMES = ", ".join(name for name, _ in COLUMNS)


def merged(
    database: Database, store: Store, manifest: Manifest, temporary: Path, name: str
) -> Manifest:
    """Write the days that `read_attempts` changes; returns the manifest that names them.

    Of two rows of one attempt, the one with an end wins, then the one that was read later.
    """
    changed = [day for (day,) in database.rows("SELECT DISTINCT day FROM read_attempts")]
    if not changed:
        return manifest
    old_files = [
        file for day in changed if day in manifest.days for file in manifest.days[day].files
    ]
    store.view(database, old_files)
    # A union with no rows would make text of what is an ENUM, which takes longer to write.
    union = f"""UNION ALL SELECT {_NAMES}, strftime(make_timestamp(
        coalesce(submitted, started) * 1000000), '%Y-%m-%d') FROM attempts"""  # noqa: S608
    database.run(
        f"""CREATE OR REPLACE TEMP VIEW all_rows AS SELECT * FROM read_attempts
        {union if old_files else ""}"""  # noqa: S608  # our own text
    )
    target = temporary / f"days-{name}"
    database.run(
        f"""COPY (SELECT * FROM all_rows {_latest(database)}) TO {quoted(str(target))}
        (FORMAT parquet, PARTITION_BY (day),
        FILENAME_PATTERN {quoted(name + "-{i}")})"""  # noqa: S608
    )
    days = dict(manifest.days) | _moved(database, store, target)
    ends = database.value("SELECT max(greatest(submitted, started, ended)) FROM read_attempts")
    return replace(manifest, days=days, known_until=max(manifest.known_until, ends or 0))


def _latest(database: Database) -> str:
    """Return the filter that leaves one row of each attempt.

    It is empty where no key is there twice."""
    rows, keys = database.row(
        f"SELECT count(*), count(DISTINCT hash(concat_ws('|', {_KEY}))) FROM all_rows"  # noqa: S608
    )
    if rows == keys:  # sorting them would cost more than all the rest
        return ""
    return f"""QUALIFY row_number() OVER (PARTITION BY {_KEY}
        ORDER BY ended IS NOT NULL DESC, import_number DESC, line DESC) = 1"""


def _moved(database: Database, store: Store, target: Path) -> dict[str, Day]:
    """Move the written files into the store; returns their days."""
    facts = database.rows(
        f"""SELECT parse_filename(parse_dirpath(filename)), count(*), min(started),
        CASE WHEN bool_or(started IS NOT NULL AND ended IS NULL) THEN NULL ELSE max(ended) END
        FROM read_parquet({quoted(str(target / "*" / "*.parquet"))}, hive_partitioning=false,
        filename=true) GROUP BY 1"""  # noqa: S608
    )
    days = {}
    for folder, attempts, first_start, last_end in facts:
        place = store.folder / "attempts" / folder
        place.mkdir(parents=True, exist_ok=True)
        files = []
        for path in sorted((target / folder).iterdir()):
            path.replace(place / path.name)
            files.append(f"attempts/{folder}/{path.name}")
        days[folder.removeprefix("day=")] = Day(tuple(files), attempts, first_start, last_end)
    return days
