"""The records of a cluster's store, as a report reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import records
from toolkit.accounting.records import (
    RecordedAttempts,
    RecordedInstances,
    RecordedLine,
    RecordedMetrics,
    RecordedPrices,
)
from toolkit.accounting.sacct import SacctContent
from toolkit.usage import database as databases
from toolkit.usage.database import quoted
from toolkit.usage.record_rows import ATTEMPTS, FACTS, INSTANCES, METRICS, PRICES, attempt_of
from toolkit.usage.store import rows_with_new_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from toolkit.accounting.set_aside import SetAside
    from toolkit.usage.cluster_store import ClusterStore
    from toolkit.usage.database import Database
    from toolkit.usage.merge import Table
    from toolkit.usage.store import Day

BEHIND_ITS_END: Final = 3600
"""Seconds for which an instance may be billed behind its end: a minimum is a minute."""


class StoredRecords:
    """The records of a store.

    An open database reads them, if one is given: opening another takes longer than a query.
    """

    def __init__(self, store: ClusterStore, database: Database | None = None) -> None:
        self._store, self._database = store, database
        self._files = store.records()

    def attempts(self, cluster: str, since: int, until: int) -> RecordedAttempts:
        """Return the attempts that a report of since … until may need."""
        del cluster  # the rows of others were set aside when they were read
        rows = self._rows(
            ATTEMPTS,
            self._files.attempts,
            (since, until),
            ", ".join(FACTS),
            f"""coalesce(least(submitted, started), 0) < {until}
            AND (ended IS NULL OR greatest(ended, started) >= {since})
            ORDER BY written, page""",
        )
        content = SacctContent(
            tuple(map(attempt_of, rows)), self._set_aside(records.SACCT, since, until)
        )
        return RecordedAttempts(content, self._files.sacct_until)

    def instances(self, since: int, until: int) -> RecordedInstances:
        """Return the lines that a report of since … until may need."""
        since -= BEHIND_ITS_END
        rows = self._rows(
            INSTANCES,
            self._files.instances,
            (since, until),
            INSTANCES.names,
            f"launched < {until} AND (ended IS NULL OR ended >= {since}) ORDER BY written, page",
        )
        return RecordedInstances(
            tuple(
                RecordedLine(entry, page, number, written)
                for _, _, _, entry, number, written, page in rows
            ),
            self._set_aside(records.INSTANCES, since, until),
            self._files.instances_until,
        )

    def prices(self, region: str, types: Collection[str], since: int, until: int) -> RecordedPrices:
        """Return the stored prices of these types."""
        first = since - since % records.DAY
        names = ", ".join(map(quoted, sorted(types))) or "''"
        rows = self._rows(
            PRICES,
            self._files.prices,
            (first, until),
            PRICES.names,
            f"""region = {quoted(region)} AND price_day >= {first} AND price_day < {until}
            AND instance_type IN ({names}) ORDER BY changed_at""",
        )
        days: dict[str, set[int]] = {name: set() for name in types}
        for second in range(first, until, records.DAY):
            for name in self._files.price_types.get(f"{region}/{databases.day(second)}", ()):
                if name in days:
                    days[name].add(second)
        return RecordedPrices(
            tuple((kind, zone, at, usd) for _, _, kind, zone, at, usd in rows),
            {name: frozenset(own) for name, own in days.items()},
            self._set_aside(f"{records.PRICES}{region}/", first, until),
        )

    def metrics(self, since: int, until: int) -> RecordedMetrics:
        """Return what was measured of the days from since to until."""
        rows = self._rows(
            METRICS,
            self._files.metrics,
            (since, until),
            METRICS.names,
            f"metric_day >= {since} AND metric_day < {until} ORDER BY metric_day, name",
        )
        return RecordedMetrics(
            tuple((day, name, measured, size) for day, name, measured, size, *_ in rows),
            self._set_aside(records.METRICS, since, until),
        )

    def _rows(
        self,
        table: Table,
        days: Mapping[str, Day],
        window: tuple[int, int],
        columns: str,
        condition: str,
    ) -> list[tuple[Any, ...]]:
        since, until = window
        files = [
            file
            for day in days.values()
            if (day.first_start or 0) < until and (day.last_end is None or day.last_end >= since)
            for file in day.files
        ]
        source = rows_with_new_columns(self._store.folder, files, table.columns)
        query = f"SELECT {columns} FROM {source} WHERE {condition}"  # noqa: S608  # our own text
        if self._database is not None:
            return self._database.rows(query)
        with databases.opened() as database:
            return database.rows(query)

    def _set_aside(self, prefix: str, since: int, until: int) -> tuple[SetAside, ...]:
        """Return what was set aside of a report's pages."""
        found: list[SetAside] = []
        for day in self._store.page_days():
            if day < databases.day(since):
                continue
            for page in self._store.pages(day).values():
                key = records.parse_key(page.key)
                if page.set_aside and key and page.key.startswith(prefix):
                    found += page.set_aside if key.concerns(since, until) else ()
        return tuple(found)
