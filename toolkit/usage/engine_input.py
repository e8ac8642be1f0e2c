"""The tables that the engine's SQL reads: attempts with their nodes, instances, price spans.

Python's values come in through a file, as DuckDB reads a file much sooner than parameters.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import billed_spans
from toolkit.accounting.attempts import CANCELLED_STATES, FAILED_STATES, STATES_OF_RUNNING
from toolkit.accounting.cost_policy import hidden_components, not_paid_by_jobs
from toolkit.accounting.instance_hours import charged_prices
from toolkit.accounting.instances import NEVER_UP
from toolkit.accounting.lives import ENDED_BY_SLURM, FOUND_DEAD
from toolkit.accounting.sacct import nodes
from toolkit.usage.database import quoted
from toolkit.usage.rates import PICO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.accounting.allocation import Policy, Window
    from toolkit.accounting.cost_policy import CostPolicy
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, PriceSpan, Shape
    from toolkit.usage.database import Database

_LARGEST_PRICE = 2**62
_DELIMITER = "\x1f"

_INSTANCES = {
    "i": "BIGINT",
    "instance_id": "VARCHAR",
    "node": "VARCHAR",
    "is_head": "BOOLEAN",
    "launched": "BIGINT",
    "ended": "BIGINT",
    "running": "BIGINT",
    "seen_at": "BIGINT",
    "end_seen": "BOOLEAN",
    "static": "BOOLEAN",
    "powered_down": "BIGINT",
    "never_up": "BOOLEAN",
    "never_ran": "BOOLEAN",
    "stopped": "BOOLEAN",
    "interrupted": "BOOLEAN",
    "shape_cpus": "BIGINT",
    "shape_memory": "BIGINT",
    "shape_gpus": "BIGINT",
}
_SPANS = {
    "i": "BIGINT",
    "s_start": "BIGINT",
    "s_end": "BIGINT",
    "pico": "BIGINT",
    "known": "BOOLEAN",
    "is_exact": "BOOLEAN",
    "source": "VARCHAR",
}


def numbered(instances: Iterable[Instance]) -> list[Instance]:
    """Return the instances in the order of their numbers.

    That is by launch, then by id."""
    return sorted(instances, key=lambda item: (item.launched, item.instance_id))


def make_instances(
    database: Database, instances: Sequence[Instance], shapes: Mapping[str, Shape]
) -> None:
    """Make the table `instances`."""

    def rows() -> Iterator[tuple[object, ...]]:
        for number, item in enumerate(instances):
            shape = shapes.get(item.instance_id)
            sizes = (shape.cpus, shape.memory_mib, shape.gpus) if shape else (0, 0, 0)
            yield (
                number, item.instance_id, item.node, item.is_head, item.launched, item.ended,
                item.running, item.seen_at, item.end_seen, item.static, item.powered_down,
                item.end_cause in NEVER_UP, item.never_ran, bool(item.stops),
                item.interrupted, *sizes,
            )  # fmt: skip

    _table(database, "instances", _INSTANCES, rows())


def make_spans(
    database: Database,
    instances: Sequence[Instance],
    book: PriceBook,
    window: Window,
    policy: Policy,
) -> None:
    """Make the table `spans`, of the prices of billed seconds."""

    def rows() -> Iterator[tuple[object, ...]]:
        for number, item in enumerate(instances):
            for span in _charged_spans(item, book, window, policy):
                price = span.price
                pico = price.usd_per_hour * PICO
                is_exact = pico == int(pico) and pico < _LARGEST_PRICE
                yield (
                    number, span.start, span.end, int(pico) if is_exact else 1, price.is_known,
                    is_exact, price.source.value,
                )  # fmt: skip

    _table(database, "spans", _SPANS, rows())


def make_payers(database: Database, cost_policy: CostPolicy) -> None:
    """Make the table `payers`, of what jobs don't pay alone."""
    hidden = hidden_components(cost_policy)
    rows = [(item.value, item in hidden) for item in sorted(not_paid_by_jobs(cost_policy))]
    database.table("payers", (("component", "VARCHAR"), ("hidden", "BOOLEAN")), list(rows))


def _charged_spans(
    instance: Instance, book: PriceBook, window: Window, policy: Policy
) -> Iterator[PriceSpan]:
    if instance.never_ran:
        return
    for span in billed_spans(instance, window.until, policy):
        low, high = max(span.start, window.since), min(span.until, window.until)
        if low < high:
            yield from charged_prices(instance, book, span.start, low, high)


def make_attempts(database: Database) -> None:
    """Make the tables `tries` and `attempts_of_nodes` of the table `attempts`."""
    database.parsed(
        "node_lists",
        "SELECT node_list FROM attempts WHERE started IS NOT NULL",
        (("node_list", "VARCHAR"), ("nodes", "VARCHAR[]")),
        lambda text: (list(nodes(text)),),
    )
    database.run(
        f"""CREATE OR REPLACE TEMP TABLE tries AS
        -- The components of a het job start together: their group is the least of their keys.
        WITH het_jobs AS (
            SELECT split_part(job, '+', 1) AS het_job, submitted AS het_submitted,
                min(db_index) AS start_group
            FROM attempts WHERE contains(job, '+') AND NOT starts_with(job, '+') GROUP BY ALL
        ), facts AS (
            SELECT db_index AS attempt, started, ended, coalesce(submitted, 0) AS submitted,
                least(coalesce(submitted, started), started) AS begun,
                coalesce(h.start_group, db_index) AS start_group,
                (state IN {_names(STATES_OF_RUNNING)} OR requeue_requested)
                    AND ended IS DISTINCT FROM started AS certainly_ran,
                state IN {_names(ENDED_BY_SLURM)} AS ended_by_slurm,
                state IN {_names(FOUND_DEAD)} AS found_dead,
                CASE WHEN ended IS NULL OR requeue_requested THEN NULL
                    WHEN state IN {_names(FAILED_STATES)} THEN coalesce(checkpoint, started)
                    WHEN state IN {_names(CANCELLED_STATES)} THEN checkpoint END AS lost_from,
                greatest(coalesce(node_count, 0), len(l.nodes), 1) AS nodes,
                coalesce(cpus, 0) AS cpus, coalesce(memory_mib, 0) AS memory_mib,
                coalesce(gpus, 0) AS gpus, l.nodes AS node_names
            FROM attempts JOIN node_lists AS l USING (node_list)
                LEFT JOIN het_jobs AS h ON contains(job, '+')
                    AND h.het_job = split_part(job, '+', 1)
                    AND h.het_submitted IS NOT DISTINCT FROM attempts.submitted
            WHERE started IS NOT NULL AND db_index IS NOT NULL)
        SELECT * FROM facts"""  # noqa: S608  # our own names of states
    )
    database.run(
        """CREATE OR REPLACE TEMP TABLE attempts_of_nodes AS
        SELECT row_number() OVER () AS pair, *
        FROM (SELECT attempt, unnest(node_names) AS node, started, begun FROM tries)"""
    )
    database.run("ALTER TABLE tries DROP COLUMN node_names")


def _names(states: Iterable[str]) -> str:
    return f"({', '.join(map(quoted, sorted(states)))})"


def _table(
    database: Database, name: str, columns: Mapping[str, str], rows: Iterable[Sequence[object]]
) -> None:
    """Make a table of rows, through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for row in rows:
                texts = ("" if value is None else str(value) for value in row)
                file.write(_DELIMITER.join(texts) + "\n")
        kinds = ", ".join(f"{quoted(column)}: {quoted(kind)}" for column, kind in columns.items())
        empty = [column for column, kind in columns.items() if kind == "VARCHAR"]
        replaced = ", ".join(f"coalesce({column}, '') AS {column}" for column in empty)
        star = f"* REPLACE ({replaced})" if empty else "*"
        database.run(
            f"""CREATE OR REPLACE TEMP TABLE {name} AS SELECT {star} FROM read_csv(
            {quoted(str(path))}, delim={quoted(_DELIMITER)}, header=false, auto_detect=false,
            quote='', escape='', comment='', new_line='\\n', nullstr='', columns={{{kinds}}})"""  # noqa: S608
        )
