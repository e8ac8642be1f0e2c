"""The rows of `toolkit nodes` and `toolkit jobs`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from toolkit.explain.answer import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.head.report import HeadReport, InstanceReport, JobReport, NodeReport

# Flags of a node's state in the order that people want; other flags are left out.
_FLAGS: Final = (
    "DOWN",
    "DRAIN",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "NOT_RESPONDING",
    "INVALID_REG",
)
_BASE_STATES: Final = ("ALLOCATED", "MIXED", "IDLE", "DOWN")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node and its instance."""

    node: str
    state: str
    instance: str = ""
    type: str = ""
    zone: str = ""
    lifecycle: str = ""
    usd_per_hour: str = ""  # The cluster's price at launch
    age_seconds: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job and its instances."""

    job: int
    label: str  # Squeue's name for it: a started task's number does not show its array
    name: str
    user: str
    partition: str
    state: str
    nodes: int
    instances: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    lifecycle: str = ""
    usd_per_hour: str = ""  # The sum over its instances; a shared node counts whole
    age_seconds: int | None = None
    reason: str = ""


NODE_HEADERS: Final = (
    "NODE", "STATE", "INSTANCE", "TYPE", "ZONE", "LIFECYCLE", "$/H", "AGE", "REASON",
)  # fmt: skip
JOB_HEADERS: Final = (
    "JOB", "NAME", "USER", "PARTITION", "STATE", "NODES", "TYPE", "ZONE", "LIFECYCLE", "$/H",
    "AGE", "REASON",
)  # fmt: skip


def node_rows(report: HeadReport, *, include_resting: bool = False) -> tuple[NodeRow, ...]:
    """Return nodes that are up or in trouble; with `include_resting`, all."""
    instances = _by_node(report.machines)
    rows = [(node, instances.get(node.name)) for node in report.nodes]
    return tuple(
        _node_row(node, instance, report.at)
        for node, instance in rows
        if include_resting or instance is not None or not _is_resting(node)
    )


def job_rows(report: HeadReport) -> tuple[JobRow, ...]:
    """Return every job that slurmctld remembers, newest last."""
    instances = _by_node(report.machines)
    return tuple(
        _job_row(job, [instances[name] for name in job.nodes if name in instances], report.at)
        for job in sorted(report.jobs, key=_sort_key)
    )


def _sort_key(job: JobReport) -> tuple[int, bool, int]:
    """Return a sort key: by number, an array's tasks together.

    Its waiting tasks come last.
    """
    return job.array or job.id, bool(job.waiting), job.id if job.task is None else job.task


def node_cells(rows: Iterable[NodeRow]) -> list[Sequence[object]]:
    """Return the rows as table cells."""
    return [
        (row.node, row.state, row.instance or "-", row.type or "-", row.zone or "-",
         row.lifecycle or "-", row.usd_per_hour or "-", _age_text(row.age_seconds), row.reason)
        for row in rows
    ]  # fmt: skip


def job_cells(rows: Iterable[JobRow]) -> list[Sequence[object]]:
    """Return the rows as table cells."""
    return [
        (row.label, row.name, row.user, row.partition, row.state, row.nodes or "-",
         ",".join(row.types) or "-", ",".join(row.zones) or "-", row.lifecycle or "-",
         row.usd_per_hour or "-", _age_text(row.age_seconds), row.reason)
        for row in rows
    ]  # fmt: skip


def _by_node(instances: Iterable[InstanceReport]) -> dict[str, InstanceReport]:
    live_instances = [
        item for item in instances if item.state in {"pending", "running"} and item.node
    ]
    return {item.node: item for item in sorted(live_instances, key=lambda item: item.launched_at)}


def _is_resting(node: NodeReport) -> bool:
    return "POWERED_DOWN" in node.flags and not {"DOWN", "DRAIN"} & set(node.flags)


def _node_row(node: NodeReport, instance: InstanceReport | None, now: float) -> NodeRow:
    if instance is None:
        return NodeRow(node.name, _state(node), reason=node.reason)
    return NodeRow(
        node=node.name,
        state=_state(node),
        instance=instance.id,
        type=instance.type,
        zone=instance.zone,
        lifecycle=instance.lifecycle,
        usd_per_hour=_price_sum([instance]),
        age_seconds=int(now - instance.launched_at),
        reason="; ".join((*([node.reason] if node.reason else []), *instance.trouble)),
    )


def _job_row(job: JobReport, instances: Sequence[InstanceReport], now: float) -> JobRow:
    start = job.started_at if "RUNNING" in job.states else job.submitted_at
    return JobRow(
        job=job.id,
        label=job.label,
        name=job.name,
        user=job.user,
        partition=job.partition,
        state="+".join(job.states).lower(),
        nodes=job.node_count or len(job.nodes),
        instances=tuple(item.id for item in instances),
        types=tuple(dict.fromkeys(item.type for item in instances)),
        zones=tuple(dict.fromkeys(item.zone for item in instances)),
        lifecycle=",".join(dict.fromkeys(item.lifecycle for item in instances)),
        usd_per_hour=_price_sum(instances) if instances else "",
        age_seconds=None if start is None else int(now - start),
        reason="" if job.reason == "None" else job.reason,
    )


def _state(node: NodeReport) -> str:
    base_state = next((word for word in _BASE_STATES if word in node.flags), "unknown")
    return "+".join(
        [base_state, *(flag for flag in _FLAGS if flag in node.flags and flag != base_state)]
    ).lower()


def _price_sum(instances: Sequence[InstanceReport]) -> str:
    """Return the sum of their prices; empty if one is unknown."""
    try:
        total = sum((Decimal(item.price) for item in instances), Decimal(0))
    except InvalidOperation:
        return ""
    return f"{total:.4f}"


def _age_text(seconds: int | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
