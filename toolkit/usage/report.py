"""The report from the store: attempts, hours and cost of a time, by keys of attempts.

Amounts are exact. Each attempt's cost is rounded once, to the nearest micro-dollar, halves to the
even one. So every grouping has the same total. What is not known is counted beside the sums, and
is in none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from toolkit.usage.database import opened
from toolkit.usage.rates import PICO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.usage.database import Database
    from toolkit.usage.rates import NodeType, Rates
    from toolkit.usage.store import Store


class UsageKey(StrEnum):
    """A property of attempts that rows can be grouped by."""

    ACCOUNT = "account"
    USER = "user"
    JOB = "job"
    PARTITION = "partition"
    QOS = "qos"
    NODE_TYPE = "node-type"
    CLUSTER = "cluster"


COLUMNS_OF_KEYS = {
    UsageKey.ACCOUNT: "account",
    UsageKey.USER: "user_name",
    UsageKey.JOB: "job_id",
    UsageKey.PARTITION: "partition_name",
    UsageKey.QOS: "qos",
    UsageKey.NODE_TYPE: "node_type",
    UsageKey.CLUSTER: "cluster",
}


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum, and the attempts whose part of it is not known."""

    known: int
    unknown_attempts: int


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of one group."""

    keys: tuple[str, ...]  # empty: not known
    attempts: int
    running: int  # attempts without an end
    node_seconds: Amount
    cpu_seconds: Amount
    gpu_seconds: Amount
    micro: Amount  # micro-dollars


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The rows of a report, the largest first, and their total."""

    since: int
    until: int
    known_until: int  # a running attempt is counted up to this second
    keys: tuple[UsageKey, ...]
    rows: tuple[UsageRow, ...]
    total: UsageRow
    priced: bool  # prices were given


def usage_report(
    store: Store, since: int | None, until: int | None, keys: Sequence[UsageKey], rates: Rates
) -> UsageReport:
    """Return the usage of since ≤ t < until.

    None stands for all that the store has. Raises UsageStoreError.
    """
    manifest = store.manifest()
    until = manifest.known_until + 1 if until is None else until
    starts = [day.first_start for day in manifest.days.values() if day.first_start is not None]
    since = min(starts, default=until) if since is None else since
    with opened() as database:
        store.view(database, manifest.files(since, until))
        _make_types(database, rates)
        columns = ", ".join(COLUMNS_OF_KEYS[key] for key in keys)
        grouped = _grouped(columns, since, until, manifest.known_until)
        rows = [_row(row, len(keys)) for row in database.rows(grouped)]
    return UsageReport(
        since, until, manifest.known_until, tuple(keys), tuple(rows), _total(rows), rates.given
    )


def _make_types(database: Database, rates: Rates) -> None:
    """Make the tables of node types and of partitions' prices."""

    def facts(node_list: str) -> tuple[object, ...]:
        # A job's nodes are of one type, as a rule: its first node tells.
        item = rates.type_of(first_node(node_list))
        return _facts(item) if item else ("", None, 0, 0, 0)

    columns = (
        ("node_list", "VARCHAR"),
        ("node_type", "VARCHAR"),
        ("type_pico", "BIGINT"),
        ("type_cpus", "BIGINT"),
        ("type_memory", "BIGINT"),
        ("type_gpus", "BIGINT"),
    )
    texts = "SELECT node_list FROM attempts" if rates.node_types else "SELECT '' WHERE false"
    database.parsed("node_types", texts, columns, facts)
    partitions = [(name, int(usd * PICO)) for name, usd in (rates.partitions or {}).items()]
    database.table(
        "partitions", (("partition_name", "VARCHAR"), ("pico", "BIGINT")), list(partitions)
    )


def _facts(item: NodeType) -> tuple[object, ...]:
    pico = None if item.usd_per_hour is None else int(item.usd_per_hour * PICO)
    return (item.name, pico, item.cpus, item.memory_mib, item.gpus)


def first_node(node_list: str) -> str:
    """Return the first node of `gpu-[001-003,7],cpu-1`: here `gpu-001`."""
    first, bracket, rest = node_list.partition(",")[0].partition("[")
    if not bracket:
        return first
    return first + rest.partition("]")[0].partition("-")[0]


def _grouped(columns: str, since: int, until: int, known_until: int) -> str:
    """Return the query of the groups.

    An attempt has the share of its nodes that is the largest of its CPU, memory and GPU parts.
    Without a type's size it has its nodes whole.
    """
    return f"""
    WITH clipped AS (
        SELECT *, coalesce(ended, greatest({known_until}, started)) AS counted_until,
            least(counted_until, {until}) - greatest(started, {since}) AS seconds
        FROM attempts LEFT JOIN node_types USING (node_list)
            LEFT JOIN partitions USING (partition_name)
        WHERE started < {until} AND (counted_until > {since}
            OR (counted_until = started AND started >= {since}))),
    sized AS (
        SELECT *, coalesce(node_type, '') AS type_name, coalesce(type_pico, pico)::HUGEINT AS usd
        FROM clipped WHERE seconds >= 0),
    shared AS (
        SELECT * REPLACE (type_name AS node_type),
            greatest(type_cpus, 1)::HUGEINT * greatest(type_memory, 1) * greatest(type_gpus, 1)
                AS whole,
            least(node_count * whole, nullif(greatest(
                CASE WHEN type_cpus > 0 THEN cpus * (whole // type_cpus) ELSE 0 END,
                CASE WHEN type_memory > 0 THEN memory_mib * (whole // type_memory) ELSE 0 END,
                CASE WHEN type_gpus > 0 THEN gpus * (whole // type_gpus) ELSE 0 END), 0)) AS part,
        FROM sized),
    priced AS (
        SELECT *, seconds * coalesce(part, node_count * coalesce(whole, 1)) * usd AS above,
            coalesce(whole, 1) * 3600 * 1000000 AS below
        FROM shared),
    rounded AS (
        SELECT *, above // below + CASE WHEN 2 * (above % below) > below
            OR (2 * (above % below) = below AND (above // below) % 2 = 1) THEN 1 ELSE 0 END AS micro
        FROM priced)
    SELECT {columns}, count(*), count(*) FILTER (ended IS NULL),
        coalesce(sum(node_count * seconds), 0)::HUGEINT, count(*) - count(node_count),
        coalesce(sum(cpus * seconds), 0)::HUGEINT, count(*) - count(cpus),
        coalesce(sum(gpus * seconds), 0)::HUGEINT, count(*) - count(gpus),
        coalesce(sum(micro), 0)::HUGEINT, count(*) - count(micro)
    FROM rounded GROUP BY {columns}
    ORDER BY sum(micro) DESC NULLS LAST, sum(node_count * seconds) DESC NULLS LAST, {columns}
    """  # noqa: S608  # numbers, and our own names of columns


def _row(row: tuple[object, ...], keys: int) -> UsageRow:
    numbers = [int(str(value)) for value in row[keys:]]
    amounts = [Amount(*numbers[at : at + 2]) for at in range(2, len(numbers), 2)]
    return UsageRow(tuple(map(str, row[:keys])), numbers[0], numbers[1], *amounts)


def _total(rows: Sequence[UsageRow]) -> UsageRow:
    def sum_of(amounts: list[Amount]) -> Amount:
        return Amount(
            sum(item.known for item in amounts), sum(item.unknown_attempts for item in amounts)
        )

    return UsageRow(
        (),
        sum(row.attempts for row in rows),
        sum(row.running for row in rows),
        sum_of([row.node_seconds for row in rows]),
        sum_of([row.cpu_seconds for row in rows]),
        sum_of([row.gpu_seconds for row in rows]),
        sum_of([row.micro for row in rows]),
    )
