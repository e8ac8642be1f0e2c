"""The tables that the engine's SQL reads: attempts with their nodes, instances, price spans.

Python's values come in through a file, as DuckDB reads a file much sooner than parameters.
"""

from __future__ import annotations

import csv
import tempfile
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.accounting.attempts import CANCELLED_STATES, FAILED_STATES, STATES_OF_RUNNING
from toolkit.accounting.charges import Component
from toolkit.accounting.cost_policy import hidden_components, not_paid_by_jobs
from toolkit.accounting.instances import NEVER_UP
from toolkit.accounting.lives import ENDED_BY_SLURM, FOUND_DEAD
from toolkit.accounting.sacct import nodes
from toolkit.prices import Shape
from toolkit.usage import instance_prices
from toolkit.usage.database import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.allocation import Policy, Window
    from toolkit.accounting.cost_policy import CostPolicy
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, SpotHistory
    from toolkit.usage.database import Database

_FACTS = {
    "is_head": "BOOLEAN",
    "launched": "BIGINT",
    "ended": "BIGINT",
    "running": "BIGINT",
    "seen_at": "BIGINT",
    "end_seen": "BOOLEAN",
    "static": "BOOLEAN",
    "powered_down": "BIGINT",
    "never_ran": "BOOLEAN",
    "interrupted": "BOOLEAN",
}
"""Columns that an instance has by the same name."""

_INSTANCES = {
    "i": "INTEGER",
    "node_number": "INTEGER",
    "market": "INTEGER",
    **_FACTS,
    "never_up": "BOOLEAN",
    "stopped": "BOOLEAN",
    "shape_cpus": "BIGINT",
    "shape_memory": "BIGINT",
    "shape_gpus": "BIGINT",
}


_NO_SHAPE = Shape(0, 0, 0)


def numbered(instances: Iterable[Instance]) -> list[Instance]:
    """Return the instances in the order of their numbers.

    That is by launch, then by id."""
    return sorted(instances, key=lambda item: (item.launched, item.instance_id))


def make_instances(
    database: Database,
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    history: SpotHistory,
) -> None:
    """Make the table `instances`."""
    nodes = node_numbers(instances)
    markets = instance_prices.markets(instances, history)

    sizes = [shapes.get(item.instance_id, _NO_SHAPE) for item in instances]
    columns = (
        range(len(instances)),
        (nodes.get(item.node) for item in instances),
        (markets.get((item.instance_type, item.zone)) if item.spot else None for item in instances),
        *(map(attrgetter(name), instances) for name in _FACTS),
        (item.end_cause in NEVER_UP for item in instances),
        (bool(item.stops) for item in instances),
        *(map(attrgetter(name), sizes) for name in ("cpus", "memory_mib", "gpus")),
    )
    _table(database, "instances", _INSTANCES, zip(*columns, strict=True))


def make_spans(
    database: Database,
    instances: Sequence[Instance],
    book: PriceBook,
    window: Window,
    policy: Policy,
) -> None:
    """Make the table `spans`, of the prices of billed seconds."""
    numbers = instance_prices.markets(instances, book.history)
    since = min((item.launched for item in instances), default=0)
    instance_prices.make_market_prices(database, book.history, numbers, since)
    database.run_file(
        "market_prices.sql",
        since=window.since,
        until=window.until,
        minimum_seconds=policy.minimum_seconds,
    )
    priced = {number for (number,) in database.rows("SELECT DISTINCT i FROM spans")}
    rows = instance_prices.book_spans(instances, priced, book, window, policy)
    _table(database, "book_spans", instance_prices.SPANS, rows)
    database.run("INSERT INTO spans SELECT * FROM book_spans")


def make_payers(database: Database, cost_policy: CostPolicy) -> None:
    """Make the type `component`, and the table `payers`.

    A payer's component is none that jobs pay alone.
    """
    names = ", ".join(quoted(item.value) for item in Component)
    database.run(f"CREATE TYPE IF NOT EXISTS component AS ENUM ({names})")
    hidden = hidden_components(cost_policy)
    rows = [(item.value, item in hidden) for item in sorted(not_paid_by_jobs(cost_policy))]
    database.table("payers", (("component", "component"), ("hidden", "BOOLEAN")), list(rows))


def node_numbers(instances: Sequence[Instance]) -> dict[str, int]:
    """Return the numbers of the nodes that had an instance."""
    names = dict.fromkeys(item.node for item in instances if item.node)
    return {name: number for number, name in enumerate(names)}


def make_attempts(database: Database, numbers: Mapping[str, int]) -> None:
    """Make the tables `tries` and `attempts_of_nodes` of the table `attempts`.

    `numbers` are those of the nodes that had an instance.
    """

    def parsed(text: str) -> tuple[int, list[int]]:
        names = list(nodes(text))
        return len(names), [numbers[name] for name in names if name in numbers]

    columns = (("node_list", "VARCHAR"), ("node_count", "BIGINT"), ("node_numbers", "INTEGER[]"))
    node_lists = "SELECT node_list FROM attempts WHERE started IS NOT NULL"
    database.parsed("node_lists", node_lists, columns, parsed)
    database.run(
        f"""CREATE OR REPLACE TEMP TABLE tries AS
        WITH facts AS (
            SELECT db_index AS attempt, started, ended, greatest(coalesce(submitted, 0),
                    CASE WHEN eligible <= started THEN eligible ELSE 0 END) AS queued_from,
                least(coalesce(submitted, started), started) AS begun,
                db_index AS start_group,
                (state IN {_names(STATES_OF_RUNNING)} OR requeue_requested)
                    AND ended IS DISTINCT FROM started AS certainly_ran,
                state IN {_names(ENDED_BY_SLURM)} AS ended_by_slurm,
                state IN {_names(FOUND_DEAD)} AS found_dead,
                CASE WHEN ended IS NULL OR requeue_requested THEN NULL
                    WHEN state IN {_names(FAILED_STATES)} THEN coalesce(checkpoint, started)
                    WHEN state IN {_names(CANCELLED_STATES)} THEN checkpoint END AS lost_from,
                greatest(coalesce(attempts.node_count, 0), l.node_count, 1) AS nodes,
                coalesce(cpus, 0) AS cpus, coalesce(memory_mib, 0) AS memory_mib,
                coalesce(gpus, 0) AS gpus, l.node_numbers
            FROM attempts JOIN node_lists AS l USING (node_list)
            WHERE started IS NOT NULL AND db_index IS NOT NULL)
        SELECT * FROM facts"""  # noqa: S608  # our own names of states
    )
    if database.rows("SELECT 1 FROM attempts WHERE contains(job, '+') LIMIT 1"):
        database.run(_JOIN_HET_JOBS)
    database.run(
        """CREATE OR REPLACE TEMP TABLE attempts_of_nodes AS
        SELECT row_number() OVER () AS pair, *
        FROM (
            SELECT attempt, unnest(node_numbers) AS node_number, started, begun, ended,
                certainly_ran, ended_by_slurm, found_dead
            FROM tries
        )"""
    )
    database.run("ALTER TABLE tries DROP COLUMN node_numbers")


# The components of a het job start together: their group is the least of their keys.
_JOIN_HET_JOBS = """UPDATE tries SET start_group = c.start_group
    FROM (
        SELECT db_index, min(db_index) OVER (
                PARTITION BY split_part(job, '+', 1), submitted
            ) AS start_group
        FROM attempts WHERE contains(job, '+') AND NOT starts_with(job, '+')
    ) AS c WHERE tries.attempt = c.db_index"""


def _names(states: Iterable[str]) -> str:
    return f"({', '.join(map(quoted, sorted(states)))})"


def _table(
    database: Database, name: str, columns: Mapping[str, str], rows: Iterable[tuple[object, ...]]
) -> None:
    """Make a table of numbers and truths, through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        kinds = ", ".join(f"{quoted(column)}: {quoted(kind)}" for column, kind in columns.items())
        database.run(
            f"""CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM read_csv(
            {quoted(str(path))}, delim=',', header=false, auto_detect=false, quote='', escape='',
            comment='', new_line='\\n', nullstr='', columns={{{kinds}}})"""  # noqa: S608
        )
