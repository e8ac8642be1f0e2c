"""The time of which newly read records say something new: its closed days are weighed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting.days import DAY
from toolkit.usage.record_rows import ATTEMPTS, INSTANCES, METRICS, PRICES
from toolkit.usage.store import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.usage.cluster_store import ClusterStore
    from toolkit.usage.database import Database
    from toolkit.usage.merge import Table
    from toolkit.usage.store import Day

# A page repeats what an earlier one had, so most rows differ in nothing.
_FACTS = {
    ATTEMPTS.name: (
        "state", "requeue_requested", "eligible", "started", "ended", "node_count", "node_list",
        "account", "user_name", "cpus", "memory_mib", "gpus", "checkpoint_marks",
    ),
    INSTANCES.name: ("entry",),
    PRICES.name: ("usd",),
    METRICS.name: ("bytes",),
}  # fmt: skip
_KEYS = {
    ATTEMPTS.name: ("db_index", "job_id", "submitted"),
    INSTANCES.name: ("instance_id",),
    PRICES.name: ("region", "price_day", "instance_type", "zone", "changed_at"),
    METRICS.name: ("metric_day", "name"),
}
_WITH_END = " AND NOT (s.ended IS NOT NULL AND r.ended IS NULL)"
_COUNTS = {  # whether the row that was read takes the place of the stored one
    ATTEMPTS.name: _WITH_END,
    INSTANCES.name: _WITH_END,
    PRICES.name: "",
    METRICS.name: " AND r.written < s.written",
}
_SECONDS = {
    # Until it was eligible, a job changed nothing: some are held for weeks.
    ATTEMPTS.name: """coalesce(least(r.started, greatest(r.submitted,
        CASE WHEN r.eligible <= r.started THEN r.eligible END)), 0)""",
    # What becomes known of a long life as a rule is its end.
    INSTANCES.name: f"greatest(r.launched, coalesce(r.ended, r.launched) - {DAY})",
    PRICES.name: "r.price_day",
    METRICS.name: "r.metric_day",
}


def first_change(
    database: Database, store: ClusterStore, table: Table, days: Iterable[Day]
) -> int | None:
    """Return the first second of rows that say something new.

    They are those of the table `read_NAME`, and `days` are the stored ones of their days.
    """
    name = table.name
    source = rows_of(store.folder, [file for day in days for file in day.files], table.columns)
    same = " AND ".join(f"r.{key} IS NOT DISTINCT FROM s.{key}" for key in _KEYS[name])
    differs = " OR ".join(f"r.{fact} IS DISTINCT FROM s.{fact}" for fact in _FACTS[name])
    first = _KEYS[name][0]
    changed = f"""FROM read_{name} AS r LEFT JOIN {source} AS s ON {same}
        WHERE s.{first} IS NULL OR (({differs}){_COUNTS[name]})"""
    second = database.value(f"SELECT min({_SECONDS[name]}) {changed}")  # our own text
    return None if second is None else int(second)
