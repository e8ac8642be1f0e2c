"""The cost of a list of instances, by the jobs of a dump: work, boot, idle time, lost work.

The engine in SQL divides each instance over the jobs that ran on it or waited for it. Instances go
through it in the order of their ends, so many of them need no more memory than some.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.charges import Component
from toolkit.accounting.days import DAY
from toolkit.accounting.node_instances import LONGEST_LOOK_BACK
from toolkit.usage import database as databases, engine
from toolkit.usage.engine_input import numbered
from toolkit.usage.errors import InstancesUnreadable
from toolkit.usage.report import COLUMNS_OF_KEYS, UsageKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, Shape
    from toolkit.usage.database import Database
    from toolkit.usage.instance_list import InstanceList
    from toolkit.usage.store import Store

AT_ONCE: Final = 75_000
"""Instances of one turn."""
SIDE_BY_SIDE: Final = 2
"""Turns that are charged at a time. Each may have the memory of one database."""
KEYS: Final = tuple(key for key in UsageKey if key is not UsageKey.NODE_TYPE)


@dataclass(slots=True)
class CostRow:
    """The cost of one group, in micro-dollars; without keys it is no job's."""

    keys: tuple[str, ...]
    micro: dict[Component, int] = field(default_factory=lambda: defaultdict(int))
    unknown: set[Component] = field(default_factory=set)  # a part of them is unknown

    @property
    def total(self) -> int:
        """Return the sum in micro-dollars."""
        return sum(self.micro.values())


@dataclass(frozen=True, slots=True)
class InstanceCosts:
    """The rows of a report, the dearest first; what is no job's comes last."""

    window: Window
    keys: tuple[UsageKey, ...]
    rows: tuple[CostRow, ...]
    instances: int
    attempts_without_key: int  # they have no DBIndex, so nothing is charged to them

    @property
    def total(self) -> int:
        """Return the cost of all instances in micro-dollars."""
        return sum(row.total for row in self.rows)


def instance_costs(
    store: Store,
    listed: InstanceList,
    window: Window,
    keys: Sequence[UsageKey],
    at_once: int = AT_ONCE,
) -> InstanceCosts:
    """Return what instances cost in a window, by the store's jobs.

    Raises UsageStoreError.
    """
    rows: dict[tuple[str, ...], CostRow] = {}
    without_key = 0
    manifest = store.manifest()
    now = max([manifest.known_until + 1, window.until])

    def charged(turn: _Turn, temporary: Path) -> tuple[int, list[tuple[Any, ...]]]:
        """Return the attempts without a DBIndex, and the sums of the turn."""
        instances = (*turn.own, *turn.others)
        facts = engine.Facts(instances, _shapes(instances, listed.book), listed.book, now)
        # One thread of DuckDB takes less CPU than two. So turns run side by side instead.
        with databases.opened(temporary, threads=1) as database:
            store.view(database, manifest.files(turn.since, turn.until))
            found = _check(database)
            engine.charge(database, facts, window, Policy())
            _name_others(database, turn)
            return found, _sums(database, keys)

    turns = _turns(listed.instances, window, at_once)
    gc.freeze()  # the instances stay, and looking at each again takes a twentieth of the time
    with store.changing() as temporary, ThreadPoolExecutor(SIDE_BY_SIDE) as executor:
        folders = [temporary / str(number) for number in range(len(turns))]
        for found, sums in executor.map(charged, turns, folders):
            without_key = max(without_key, found)
            _add(sums, len(keys), rows)
    gc.unfreeze()
    ordered = sorted(rows.values(), key=lambda row: (not row.keys, -row.total, row.keys))
    return InstanceCosts(window, tuple(keys), tuple(ordered), len(listed.instances), without_key)


@dataclass(slots=True)
class _Turn:
    """The instances of one turn, and those beside them on their nodes."""

    own: Sequence[Instance]
    since: int  # attempts that ended before are not asked
    until: int  # nor those that started after
    others: list[Instance] = field(default_factory=list)


def _turns(instances: Sequence[Instance], window: Window, at_once: int) -> list[_Turn]:
    """Divide instances by their ends.

    Each turn also has the instances that lived in its time, since they tell whose an attempt was.
    """

    def end(item: Instance) -> int:
        return window.until if item.ended is None else item.ended

    lived = [item for item in instances if item.launched < window.until]
    by_end = sorted(lived, key=lambda item: (end(item), item.instance_id))
    turns = []
    for first in range(0, len(by_end), at_once):
        own = by_end[first : first + at_once]
        since = max(min(item.launched for item in own), end(own[0]) - LONGEST_LOOK_BACK) - DAY
        turns.append(_Turn(own, since, end(own[-1]) + DAY))
    for number, turn in enumerate(turns):
        for later in turns[number + 1 :]:
            later.others += turn.own[bisect_left(turn.own, later.since, key=end) :]
        begun = turn.own
        for earlier in turns[:number][::-1]:  # those that began before the one before it are fewer
            begun = [item for item in begun if item.launched < earlier.until]
            earlier.others += begun
    return turns


def _check(database: Database) -> int:
    """Return the number of attempts without a DBIndex. Raises InstancesUnreadable."""
    clusters, repeated, without_key = database.row(
        """SELECT count(DISTINCT cluster), count(db_index) - count(DISTINCT db_index),
            count(*) FILTER (db_index IS NULL) FROM attempts"""
    )
    if clusters > 1 or repeated:
        raise InstancesUnreadable(
            "the store has attempts of several clusters, or two of one DBIndex",
            next_step="import the dump of one cluster into a --store of its own",
        )
    return int(without_key)


def _name_others(database: Database, turn: _Turn) -> None:
    """Make the table `others`, of the instances that aren't the turn's own."""
    others = {item.instance_id for item in turn.others}
    numbers = [
        (number,)
        for number, item in enumerate(numbered([*turn.own, *turn.others]))
        if item.instance_id in others
    ]
    database.table("others", (("i", "INTEGER"),), list(numbers))


def _sums(database: Database, keys: Sequence[UsageKey]) -> list[tuple[Any, ...]]:
    """Return the sums of the turn's own instances.

    They are by the keys and by component.
    """
    columns = ", ".join(f"coalesce({COLUMNS_OF_KEYS[key]}, '')" for key in keys)
    source = "charges ANTI JOIN others USING (i) LEFT JOIN attempts ON db_index = attempt"
    return database.rows(
        f"""SELECT {columns}, attempt IS NULL AS is_nobody, component, sum(micro)::BIGINT,
            bool_or(NOT known) FROM {source} GROUP BY ALL"""  # noqa: S608  # our own names
    )


def _add(sums: Sequence[tuple[Any, ...]], width: int, rows: dict[tuple[str, ...], CostRow]) -> None:
    """Add the sums of a turn."""
    for row in sums:
        is_nobody, component, micro, unknown = row[width:]
        values = () if is_nobody else row[:width]
        item = rows.setdefault(values, CostRow(values))
        item.micro[Component(component)] += micro
        if unknown:
            item.unknown.add(Component(component))


def _shapes(instances: Sequence[Instance], book: PriceBook) -> dict[str, Shape]:
    """Return the sizes of instances whose type the catalogue has."""
    shapes = book.catalogue.shapes
    return {
        item.instance_id: shapes[item.instance_type]
        for item in instances
        if item.instance_type in shapes
    }
