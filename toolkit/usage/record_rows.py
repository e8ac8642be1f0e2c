"""Attempts, instances, prices and metrics of records as rows of the store, and back.

The parsers are those of the report. What a column can't hold is set aside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolkit.accounting.attempts import REQUEUE_EXIT, Attempt
from toolkit.accounting.sacct import nodes, other_nodes
from toolkit.accounting.set_aside import SetAside
from toolkit.accounting.tres import Tres
from toolkit.usage.dump_columns import COLUMNS
from toolkit.usage.merge import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

_OF_DUMPS = ("import_number", "line")
_WRITTEN = (("written", "BIGINT"), ("page", "VARCHAR"))
_PROJECT = (("project", "VARCHAR"),)
_LARGEST = 2**63 - 1

ATTEMPTS = Table(
    "attempts",
    (*(column for column in COLUMNS if column[0] not in _OF_DUMPS), *_PROJECT, *_WRITTEN),
    # As `toolkit.accounting.records.latest_of`: a restored database counts on from the backup.
    key="db_index, job_id, submitted",
    order="ended IS NOT NULL DESC, written DESC, page DESC",
    second="coalesce(submitted, started, 0)",
    first="min(least(submitted, started))",
    last="CASE WHEN bool_or(ended IS NULL) THEN NULL ELSE max(greatest(ended, started)) END",
)
INSTANCES = Table(
    "instances",
    (
        ("instance_id", "VARCHAR"),
        ("launched", "BIGINT"),
        ("ended", "BIGINT"),
        ("entry", "VARCHAR"),  # the ledger's own text
        ("number", "BIGINT"),  # of the line
        *_WRITTEN,
    ),
    key="instance_id",
    order="ended IS NOT NULL DESC, written DESC, page DESC, number DESC",
    second="launched",
    first="min(launched)",
    last="CASE WHEN bool_or(ended IS NULL) THEN NULL ELSE max(ended) END",
)
PRICES = Table(
    "prices",
    (
        ("region", "VARCHAR"),
        ("price_day", "BIGINT"),
        ("instance_type", "VARCHAR"),
        ("zone", "VARCHAR"),
        ("changed_at", "BIGINT"),
        ("usd", "VARCHAR"),
    ),
    key="region, price_day, instance_type, zone, changed_at, usd",
    order="usd",
    second="price_day",
    first="min(price_day)",
    last="max(price_day)",
)


METRICS = Table(
    "metrics",
    (
        ("metric_day", "BIGINT"),
        ("name", "VARCHAR"),  # a storage type of S3, or the NAT gateway
        ("measured", "BIGINT"),  # the day of the value
        ("bytes", "BIGINT"),
        *_WRITTEN,
    ),
    key="metric_day, name",
    order="written, page",  # what was written first stays
    second="metric_day",
    first="min(metric_day)",
    last="max(metric_day)",
)


_NAMES = tuple(name for name, _ in ATTEMPTS.columns)


def attempt_row(
    cluster: str, attempt: Attempt, written: int, page: str
) -> tuple[object, ...] | SetAside:
    """Return the row of an attempt.

    It is set aside if a column can't hold a number of it.
    """
    numbers = (
        attempt.restarts, attempt.node_count, attempt.tres.cpus, attempt.tres.memory_mib,
        attempt.tres.gpus,
    )  # fmt: skip
    if attempt.key >= 1 << 64 or any(number and number > _LARGEST for number in numbers):
        reason = "a number that no 64 bits hold"
        return SetAside(f"job {attempt.job_id[:20]} in {page}", reason)
    values = {
        "cluster": cluster,
        "db_index": attempt.key,
        "job_id": attempt.job_id,
        "job": attempt.job,
        "job_name": attempt.name,
        "user_name": attempt.user,
        "account": attempt.account,
        "partition_name": attempt.partition,
        "qos": attempt.qos,
        "project": attempt.project,
        "state": attempt.state,
        "requeue_requested": attempt.requeue_requested,
        "restarts": attempt.restarts,
        "submitted": attempt.submitted,
        "eligible": attempt.eligible,
        "started": attempt.started,
        "ended": attempt.ended,
        "node_count": attempt.node_count,
        "node_list": ",".join((*attempt.nodes, *attempt.other_nodes)),
        "cpus": attempt.tres.cpus,
        "memory_mib": attempt.tres.memory_mib,
        "gpus": attempt.tres.gpus,
        "checkpoint": attempt.checkpoint(),
        "checkpoint_marks": ",".join(attempt.checkpoint_marks()),
        "written": written,
        "page": page,
    }
    return tuple(values[name] for name in _NAMES)


FACTS = tuple(name for name in _NAMES if name not in {"cluster", "checkpoint", "written", "page"})
"""The columns that an attempt is made of."""


def attempt_of(row: Iterable[Any]) -> Attempt:
    """Return the attempt of a row of `FACTS`."""
    values: dict[str, Any] = dict(zip(FACTS, row, strict=True))
    return Attempt(
        key=values["db_index"],
        job_id=values["job_id"],
        job=values["job"],
        name=values["job_name"],
        user=values["user_name"],
        account=values["account"],
        partition=values["partition_name"],
        state=values["state"],
        exit_codes=(REQUEUE_EXIT,) if values["requeue_requested"] else (),
        restarts=values["restarts"],
        submitted=values["submitted"],
        eligible=values["eligible"],
        started=values["started"],
        ended=values["ended"],
        nodes=nodes(values["node_list"]),
        other_nodes=other_nodes(values["node_list"]),
        tres=Tres(values["cpus"], values["memory_mib"], values["gpus"]),
        comments=_comments(values["checkpoint_marks"]),
        node_count=values["node_count"],
        qos=values["qos"] or "",
        project=values["project"] or "",
    )


@lru_cache(maxsize=1024)  # most attempts have none
def _comments(marks: str) -> str:
    return " ".join(f"toolkit:checkpoint={mark}" for mark in marks.split(",") if mark)
