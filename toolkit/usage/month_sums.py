"""Keep the sums of a closed month beside its days.

The month's report reads them, and adds nothing up. The days' own files stay the truth. A folder's
name is a digest of the days that it was made of. So a month with a corrected day has no sums until
they are written anew. Nothing is lost without them.
"""

from __future__ import annotations

import hashlib
import shutil
from operator import attrgetter
from typing import TYPE_CHECKING

from toolkit.accounting.days import DAY, day_of
from toolkit.accounting.periods import month_before, month_of
from toolkit.usage import month_answers
from toolkit.usage.database import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from toolkit.usage.closed_store import ClosedDay, ClosedDays
    from toolkit.usage.database import Database

FOLDER = "closed-months"
_LAYOUT = 1
"""The layout of the tables. Sums of another one are not read."""

_TABLES = {
    "things": ("*", "things"),
    "costs": ("* REPLACE (gross::{large} AS gross, refund::{large} AS refund)", "costs"),
    "named_sums": (
        "* REPLACE (seconds::{large} AS seconds, attempt::UBIGINT AS attempt)",
        "named_sums ORDER BY i, place",
    ),
    "component_prices": ("*", "component_prices"),
    "day_rows": (
        """i, component, attempt::UBIGINT AS attempt, known, price_sources,
        min(price_as_of) AS price_as_of""",
        "day_rows WHERE price_sources <> '' GROUP BY ALL",
    ),
    "details": (
        "subject, instance_id, usage_day, prices",
        "details WHERE subject = 'parts' ORDER BY instance_id, usage_day",
    ),
    "day_texts": ("subject, content", "day_texts"),
}
"""The columns and the source of each table that a report reads.

DuckDB writes a HUGEINT to Parquet as DOUBLE, but a DECIMAL as it is. DBIndexes fit 64 bits here.
"""


def folder_of(store: Path, days: Sequence[ClosedDay], until: int) -> Path:
    """Return the folder of the sums of these days.

    It may not be there. `until` is the end of the last day.
    """
    facts = (_LAYOUT, until, *days)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    return store / FOLDER / month_of(day_of(until - DAY)).name / digest


def read(database: Database, folder: Path) -> None:
    """Make the views of what a report reads."""
    for name, (columns, _) in _TABLES.items():
        selected = columns.format(large="HUGEINT") if columns.startswith("*") else "*"
        path = quoted(str(folder / f"{name}.parquet"))
        database.run(
            f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {selected} FROM read_parquet({path})"  # noqa: S608  # our own names
        )
    database.run("CREATE OR REPLACE TEMP VIEW sums AS FROM named_sums")


def write(
    database: Database, folder: Path, temporary: Path, answers: Mapping[str, Sequence[object]]
) -> None:
    """Write the open database's sums in place of the month's others."""
    made = temporary / folder.name
    made.mkdir()
    for name, (columns, source) in _TABLES.items():
        exact = columns.format(large="DECIMAL(38, 0)")
        path = quoted(str(made / f"{name}.parquet"))
        database.run(f"COPY (SELECT {exact} FROM {source}) TO {path} (FORMAT parquet)")  # noqa: S608  # our own names
    month_answers.write(made, answers)
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    made.rename(folder)


def ended_months(closed: ClosedDays, changed: Iterable[int]) -> list[list[int]]:
    """Return the closed days of ended months with a changed day.

    The last month that is over is always among them, since its closing may have been killed.
    """
    if closed.until is None:
        return []
    begun = month_of(day_of(closed.until))  # its last day is not closed
    months = {month_before(begun.first), *(month_of(day_of(day)) for day in changed)}
    spans = []
    for month in sorted(months, key=attrgetter("first")):
        if month.first < begun.first:
            seconds = range(month.window.since, month.window.until, DAY)
            spans.append([day for day in seconds if day in closed.days])
    return [days for days in spans if days]
