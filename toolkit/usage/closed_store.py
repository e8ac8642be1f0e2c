"""The closed days of a cluster's store: which there are, their files, their corrections.

`closed.json` names the valid files. A closing writes new files and then replaces it at once. The
files of an earlier closing stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.accounting.allocation import Window
from toolkit.accounting.days import DAY
from toolkit.usage import database as databases, day_charges, day_details
from toolkit.usage.database import quoted
from toolkit.usage.day_charges import READ_COLUMNS
from toolkit.usage.errors import StoreUnreadable
from toolkit.usage.lazy_mapping import DAMAGES, LazyMapping
from toolkit.usage.store import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from toolkit.accounting.segments import Segment
    from toolkit.usage.cluster_store import ClusterStore
    from toolkit.usage.database import Database

CHARGES, DETAILS = "closed", "closed-details"


@dataclass(frozen=True, slots=True)
class DayCorrection:
    """A change of a closed day by a later closing, in micro-dollars."""

    closing: int
    at: int  # epoch second
    old: int
    new: int
    charges: int  # rows written


@dataclass(frozen=True, slots=True)
class ClosedDay:
    """A day whose charges are written."""

    charges: tuple[str, ...]  # files, of the first closing and of corrections
    details: str  # file of the last closing
    closing: int
    closed_at: int
    reach: int  # the second up to which attempts were known
    micro: int
    settings: str  # digest of the prices and payers in cluster.yaml
    policy: Mapping[str, str]
    first_cost: int | None
    has_open_tail: bool = False
    corrections: tuple[DayCorrection, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosedDays:
    """All closed days, by their first second."""

    closings: int = 0
    days: Mapping[int, ClosedDay] = field(default_factory=dict)

    @property
    def until(self) -> int | None:
        """Return the end of the last closed day."""
        return max(self.days) + DAY if self.days else None


def read(store: ClusterStore) -> ClosedDays:
    """Return the closed days.

    Raises StoreUnreadable, also when a damaged day is asked for.
    """
    path = store.folder / "closed.json"
    data = store.read_json(path)
    if data is None:
        return ClosedDays()
    try:
        days = {int(day): item for day, item in data["days"].items()}
        return ClosedDays(int(data["closings"]), LazyMapping(days, _day, partial(_damaged, path)))
    except DAMAGES as error:
        raise _damaged(path) from error


def _day(item: dict[str, Any]) -> ClosedDay:
    corrections = tuple(DayCorrection(**entry) for entry in item["corrections"])
    return ClosedDay(**{**item, "charges": tuple(item["charges"]), "corrections": corrections})


def _damaged(path: Path) -> StoreUnreadable:
    return StoreUnreadable(
        f"{path} names no closed days",
        next_step="bring it back from a copy: closed days are the only place of past charges",
    )


def commit(store: ClusterStore, closed: ClosedDays, days: Iterable[int]) -> None:
    """Replace the names of the files.

    Files of these days without a name are removed.
    """
    store.write_json(
        store.folder / "closed.json",
        {
            "closings": closed.closings,
            "days": {str(day): _json(item) for day, item in sorted(closed.days.items())},
        },
    )
    for day in days:
        item = closed.days.get(day)
        named = {*item.charges, item.details} if item else set()
        for table in (CHARGES, DETAILS):
            store.remove_others(f"{table}/day={databases.day(day)}", named)


def _json(item: ClosedDay) -> dict[str, Any]:
    """Return a day as JSON values.

    `asdict` takes long where there are thousands of them.
    """
    values = {entry.name: getattr(item, entry.name) for entry in fields(item)}
    return {**values, "corrections": [asdict(entry) for entry in item.corrections]}


@dataclass(frozen=True, slots=True)
class DayFiles:
    """A reader and writer of the files of closed days."""

    database: Database
    folder: Path  # of the store
    temporary: Path

    def write_charges(self, day: int, closing: int, rows: Sequence[Sequence[object]]) -> str:
        """Write the charges of a day; return the file's name."""
        return self._write(CHARGES, (day, closing), day_charges.COLUMNS, rows)

    def write_details(self, day: int, closing: int, rows: Iterable[Sequence[object]]) -> str:
        """Write the details of a day; return the file's name."""
        return self._write(DETAILS, (day, closing), day_details.COLUMNS, list(rows))

    def read_charges(self, day: ClosedDay) -> dict[day_charges.Key, day_charges.Amount]:
        """Return the sums of a day's charges and corrections."""
        source = rows_of(self.folder, day.charges, day_charges.COLUMNS)
        query = f"SELECT {READ_COLUMNS} FROM {source} ORDER BY closing, position"  # noqa: S608  # our own text
        return day_charges.read_amounts(self.database.rows(query))

    def _write(
        self,
        name: str,
        place: tuple[int, int],
        columns: Sequence[tuple[str, str]],
        rows: Sequence[Sequence[object]],
    ) -> str:
        day, closing = place
        path = self.temporary / f"{name}-{closing}.parquet"
        self.database.table("written", columns, list(rows))
        self.database.run(f"COPY written TO {quoted(str(path))} (FORMAT parquet)")
        file = f"{name}/day={databases.day(day)}/{closing}.parquet"
        target = self.folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        return file


def segments(
    store: ClusterStore,
    closed: ClosedDays,
    days: Sequence[int],
    instances: Sequence[str] | None = None,
) -> list[Segment]:
    """Return closed days as segments of a report.

    Those of some instances have no attempts and no notes.
    """
    charges = [file for day in days for file in closed.days[day].charges]
    details = [closed.days[day].details for day in days]
    names = ", ".join(map(quoted, instances or ()))
    own = "" if instances is None else f"WHERE instance_id IN ({names or 'NULL'})"
    with databases.opened(threads=1) as database:
        rows_by_day = _by_day(
            database,
            f"""{READ_COLUMNS} FROM {rows_of(store.folder, charges, day_charges.COLUMNS)} {own}
            ORDER BY closing, position""",
        )
        details_by_day = _by_day(
            database,
            f"""subject, content FROM {rows_of(store.folder, details, day_details.COLUMNS)} {own}
            ORDER BY number""",
        )
    made = []
    for day in days:
        item = closed.days[day]
        parts = day_charges.parts_of(day_charges.read_amounts(rows_by_day[day]))
        made.append(
            day_details.segment_of(
                details_by_day[day], parts, Window(day, day + DAY), item.policy, item.first_cost
            )
        )
    return made


def _by_day(database: Database, query: str) -> dict[int, list[tuple[Any, ...]]]:
    """Return the rows of a query by their days' first seconds."""
    by_day: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for second, *row in database.rows(f"SELECT epoch(usage_day)::BIGINT, {query}"):
        by_day[second].append(tuple(row))
    return by_day


def with_day(closed: ClosedDays, day: int, item: ClosedDay) -> ClosedDays:
    """Return the closed days with one more, or with a corrected one."""
    return replace(
        closed, closings=max(closed.closings, item.closing), days={**closed.days, day: item}
    )
