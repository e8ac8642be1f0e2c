"""The closed days of a cluster's store: which there are, their files, their corrections.

`closed.json` names the valid files. A closing writes new files and then replaces it at once. The
files of an earlier closing stay as they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolkit.accounting.allocation import Window
from toolkit.accounting.days import DAY
from toolkit.usage import database as databases, day_charges, day_details
from toolkit.usage.database import quoted
from toolkit.usage.day_charges import READ_COLUMNS
from toolkit.usage.errors import StoreUnreadable
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
    """Return the closed days. Raises StoreUnreadable."""
    path = store.folder / "closed.json"
    data = store.read_json(path)
    if data is None:
        return ClosedDays()
    try:
        return ClosedDays(
            int(data["closings"]), {int(day): _day(item) for day, item in data["days"].items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreUnreadable(
            f"{path} names no closed days",
            next_step="bring it back from a copy: closed days are the only place of past charges",
        ) from error


def _day(item: dict[str, Any]) -> ClosedDay:
    corrections = tuple(DayCorrection(**entry) for entry in item.pop("corrections"))
    return ClosedDay(**{**item, "charges": tuple(item["charges"]), "corrections": corrections})


def commit(store: ClusterStore, closed: ClosedDays) -> None:
    """Replace the names of the files, then remove files without a name."""
    store.write_json(
        store.folder / "closed.json",
        {
            "closings": closed.closings,
            "days": {str(day): asdict(item) for day, item in sorted(closed.days.items())},
        },
    )
    store.remove_others(CHARGES, {file for day in closed.days.values() for file in day.charges})
    store.remove_others(DETAILS, {day.details for day in closed.days.values()})


@dataclass(frozen=True, slots=True)
class DayFiles:
    """A writer of the files of one closing of a day."""

    store: ClusterStore
    temporary: Path
    day: int
    number: int  # of the closing

    def write_charges(self, rows: Sequence[Sequence[object]]) -> str:
        """Write the file of charges; return its name."""
        return self._write(CHARGES, day_charges.COLUMNS, rows)

    def write_details(self, rows: Iterable[Sequence[object]]) -> str:
        """Write the file of details; return its name."""
        return self._write(DETAILS, day_details.COLUMNS, list(rows))

    def _write(
        self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[object]]
    ) -> str:
        path = self.temporary / f"{name}-{self.number}.parquet"
        with databases.opened(self.temporary, threads=1) as database:
            database.table("written", columns, list(rows))
            database.run(f"COPY written TO {quoted(str(path))} (FORMAT parquet)")
        file = f"{name}/day={databases.day(self.day)}/{self.number}.parquet"
        place = self.store.folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        return file


def read_charges(
    database: Database, store: ClusterStore, day: ClosedDay
) -> dict[day_charges.Key, day_charges.Amount]:
    """Return the sums of a day's charges and corrections."""
    source = rows_of(store.folder, day.charges, day_charges.COLUMNS)
    query = f"SELECT {READ_COLUMNS} FROM {source} ORDER BY closing, position"  # noqa: S608  # our own text
    return day_charges.read_amounts(database.rows(query))


def segments(store: ClusterStore, closed: ClosedDays, days: Iterable[int]) -> list[Segment]:
    """Return closed days as segments of a report."""
    made = []
    with databases.opened(threads=1) as database:
        for day in days:
            item = closed.days[day]
            parts = day_charges.parts_of(read_charges(database, store, item))
            source = rows_of(store.folder, [item.details], day_details.COLUMNS)
            rows = database.rows(f"SELECT subject, content FROM {source}")  # noqa: S608
            window = Window(day, day + DAY)
            made.append(day_details.segment_of(rows, parts, window, item.policy, item.first_cost))
    return made


def with_day(closed: ClosedDays, day: int, item: ClosedDay) -> ClosedDays:
    """Return the closed days with one more, or with a corrected one."""
    return replace(
        closed, closings=max(closed.closings, item.closing), days={**closed.days, day: item}
    )
