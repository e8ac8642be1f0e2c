"""Closed days: charges of ended instances, written once.

A closing writes the charges of the instances that ended since the last one, by day of use. It never
writes one again. If later facts say otherwise, a closing adds a correction: a row of its own with
the difference. Days up to `sealed_until` take no row any more, so their report prints the same
bytes for ever. What belongs to a sealed day is booked on the first open one, with its day of use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from toolkit.usage import database as databases
from toolkit.usage.database import quoted
from toolkit.usage.store import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from toolkit.accounting.instances import Instance
    from toolkit.usage.database import Database
    from toolkit.usage.store import Store

ESTIMATED = "estimated"
"""The status of what we computed; a bill makes it reconciled, then final."""

_COLUMNS = (
    ("usage_day", "VARCHAR"),
    ("kind", "VARCHAR"),  # charge, late charge or correction
    ("status", "VARCHAR"),
    ("closing", "INTEGER"),
    ("closed_at", "BIGINT"),
    ("instance_id", "VARCHAR"),
    ("node", "VARCHAR"),
    ("instance_type", "VARCHAR"),
    ("spot", "BOOLEAN"),
    ("component", "VARCHAR"),
    ("attempt", "UBIGINT"),
    ("cluster", "VARCHAR"),
    ("job_id", "VARCHAR"),
    ("account", "VARCHAR"),
    ("user_name", "VARCHAR"),
    ("partition_name", "VARCHAR"),
    ("qos", "VARCHAR"),
    ("micro", "BIGINT"),
    ("known", "BOOLEAN"),
    ("seconds", "DOUBLE"),
    ("price_sources", "VARCHAR"),
)
_NAMES = ", ".join(name for name, _ in _COLUMNS)
_TYPES = {
    "change_kind": ("charge", "late charge", "correction"),
    "charge_status": (ESTIMATED,),
}


@dataclass(frozen=True, slots=True)
class ClosedRow:
    """The closed charges of one group."""

    keys: tuple[str, ...]  # empty: no job's
    kind: str
    micro: int
    seconds: float
    unknown_charges: int


def close(
    database: Database,
    store: Store,
    instances: Sequence[Instance],
    now: int,
    temporary: Path,
    *,
    sealed_until: str = "",
) -> int:
    """Write the charges of ended instances that differ from the closed ones.

    The database has the engine's tables. Returns the number of rows. A repeated call writes
    none. With `sealed_until`, a day such as 2026-10-31, the days up to it are closed for good.
    """
    manifest = store.manifest()
    database.run_file("days.sql")
    types = [(item.instance_id, item.instance_type, item.spot) for item in instances]
    columns = (("instance_id", "VARCHAR"), ("instance_type", "VARCHAR"), ("spot", "BOOLEAN"))
    database.table("types", columns, list(types))
    first = database.value(
        """SELECT coalesce(min(day), 0) FROM day_charges JOIN lives USING (i)
        WHERE ended IS NOT NULL"""
    )
    files = [
        file for day, names in manifest.charges.items() if day >= _day(first) for file in names
    ]
    _view(database, store, files, "closed")
    sealed = max(sealed_until, manifest.sealed_until)
    closing = manifest.closings + 1
    open_from = _next(manifest.sealed_until) if manifest.sealed_until else ""
    _make_names(database, open_from)
    database.run(_changes(closing, now))
    target = temporary / f"charges-{closing}"
    count = int(
        database.value(
            f"""COPY changes TO {quoted(str(target))} (FORMAT parquet, PARTITION_BY (day),
            FILENAME_PATTERN {quoted(f"{closing}-{{i}}")})"""
        )
    )
    if count:
        charges = dict(manifest.charges)
        for day, names in _moved(store, target).items():
            charges[day] = (*charges.get(day, ()), *names)
        manifest = replace(manifest, charges=charges, closings=closing)
    if count or sealed != manifest.sealed_until:
        store.commit(replace(manifest, sealed_until=sealed))
    return count


def _make_names(database: Database, open_from: str) -> None:
    """Make the tables `names`, `ended` and `booked_days`."""
    for name, values in _TYPES.items():
        database.run(f"CREATE TYPE IF NOT EXISTS {name} AS ENUM ({', '.join(map(quoted, values))})")
    names = database.text_types(
        "attempts", ("cluster", "account", "user_name", "partition_name", "qos")
    )
    texts = ", ".join(f"{name}::{kind} AS {name}" for name, kind in names.items())
    database.run(
        f"""CREATE OR REPLACE TEMP TABLE names AS SELECT db_index AS attempt, job_id, {texts}
        FROM attempts WHERE db_index IS NOT NULL"""  # noqa: S608  # our own names
    )
    node = database.text_types("lives", ("node",))["node"]
    instance_type = database.text_types("types", ("instance_type",))["instance_type"]
    sources = database.text_types("prices", ("sources",))["sources"]
    database.run(
        f"""CREATE OR REPLACE TEMP TABLE ended AS SELECT i, instance_id, node::{node} AS node,
            instance_type::{instance_type} AS instance_type, spot,
            sources::{sources} AS price_sources
        FROM lives JOIN types USING (instance_id) LEFT JOIN prices USING (i)
        WHERE ended IS NOT NULL"""  # noqa: S608
    )
    database.run(
        f"""CREATE OR REPLACE TEMP TABLE booked_days AS
        WITH days AS (
            SELECT day, strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') AS usage_day
            FROM (SELECT day FROM day_charges
                UNION SELECT epoch(usage_day::TIMESTAMP)::BIGINT // 86400 FROM closed)
        )
        SELECT day AS number, usage_day, greatest(usage_day, {quoted(open_from)}) AS day,
            usage_day < {quoted(open_from)} AS is_late
        FROM days"""  # noqa: S608
    )


def _changes(closing: int, now: int) -> str:
    """Return the statement that makes the view `changes`.

    Each row has the day on which it is booked."""
    return f"""CREATE OR REPLACE TEMP VIEW changes AS
    WITH known AS MATERIALIZED (SELECT DISTINCT instance_id FROM closed),
    first_charges AS (
        SELECT d.i, d.component, d.attempt, d.day, d.micro, d.known, d.seconds, 'charge' AS kind
        FROM day_charges AS d SEMI JOIN (SELECT i FROM ended ANTI JOIN known USING (instance_id))
            USING (i)
    ), closed_before AS (SELECT i, instance_id FROM ended SEMI JOIN known USING (instance_id)),
    new AS (
        SELECT i, component, attempt, day, sum(micro)::BIGINT AS micro,
            bool_and(known) AS known, sum(seconds) AS seconds
        FROM day_charges SEMI JOIN closed_before USING (i) GROUP BY i, component, attempt, day
    ), old AS (
        SELECT i, component::component AS component, attempt,
            epoch(usage_day::TIMESTAMP)::BIGINT // 86400 AS day, sum(micro)::BIGINT AS micro,
            sum(seconds) AS seconds
        FROM closed JOIN closed_before USING (instance_id) GROUP BY ALL
    ), corrections AS (
        SELECT coalesce(n.i, o.i) AS i, coalesce(n.component, o.component) AS component,
            coalesce(n.attempt, o.attempt) AS attempt, coalesce(n.day, o.day) AS day,
            coalesce(n.micro, 0) - coalesce(o.micro, 0) AS micro, coalesce(n.known, true) AS known,
            coalesce(n.seconds, 0) - coalesce(o.seconds, 0) AS seconds, 'correction' AS kind
        FROM new AS n FULL JOIN old AS o ON n.i = o.i AND n.component = o.component
            AND n.day = o.day AND n.attempt IS NOT DISTINCT FROM o.attempt
        WHERE coalesce(n.micro, 0) <> coalesce(o.micro, 0) OR (o.i IS NULL AND NOT n.known)
    ), rows AS (
        SELECT * FROM first_charges UNION ALL SELECT * FROM corrections
    )
    SELECT d.usage_day, CASE WHEN c.kind = 'charge' AND d.is_late
            THEN 'late charge' ELSE c.kind END::change_kind AS kind,
        {quoted(ESTIMATED)}::charge_status AS status, {closing} AS closing, {now} AS closed_at,
        l.instance_id, l.node, l.instance_type, l.spot, c.component, c.attempt, a.cluster, a.job_id,
        a.account, a.user_name, a.partition_name, a.qos, c.micro, c.known, c.seconds,
        l.price_sources, d.day
    FROM rows AS c JOIN ended AS l USING (i) JOIN booked_days AS d ON d.number = c.day
        LEFT JOIN names AS a USING (attempt)"""  # noqa: S608  # our own text


def report(store: Store, first_day: str, last_day: str, keys: Sequence[str]) -> list[ClosedRow]:
    """Return the charges booked on these days: one group-by.

    A correction has rows of its own.
    """
    manifest = store.manifest()
    files = [
        file
        for day, names in manifest.charges.items()
        if first_day <= day <= last_day
        for file in names
    ]
    columns = ", ".join(f"coalesce({key}, '')" for key in keys)
    with databases.opened() as database:
        _view(database, store, files, "closed")
        rows = database.rows(
            f"""SELECT {columns}, kind, sum(micro)::HUGEINT, sum(seconds),
            count(*) FILTER (NOT known) FROM closed
            GROUP BY ALL ORDER BY sum(micro) DESC, {columns}, kind"""  # noqa: S608
        )
    width = len(keys)
    return [
        ClosedRow(
            row[:width], row[width], int(row[width + 1]), float(row[width + 2]), row[width + 3]
        )
        for row in rows
    ]


def _view(database: Database, store: Store, files: Sequence[str], name: str) -> None:
    source = rows_of(store.folder, files, _COLUMNS)
    database.run(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {_NAMES} FROM {source}")  # noqa: S608


def _moved(store: Store, target: Path) -> dict[str, tuple[str, ...]]:
    """Move the written files into the store; returns their names by day."""
    names = {}
    for folder in sorted(target.iterdir()):
        place = store.folder / "charges" / folder.name
        place.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.iterdir())
        for path in files:
            path.replace(place / path.name)
        day = folder.name.removeprefix("day=")
        names[day] = tuple(f"charges/{folder.name}/{path.name}" for path in files)
    return names


def _day(number: int) -> str:
    return f"{datetime.fromtimestamp(number * 86400, UTC):%Y-%m-%d}"


def _next(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
