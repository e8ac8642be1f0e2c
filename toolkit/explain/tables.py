"""The rows of `toolkit nodes` and `toolkit jobs`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.explain.answer import span

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
_BASES: Final = ("ALLOCATED", "MIXED", "IDLE", "DOWN")


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


def node_rows(sheet: HeadReport, *, everything: bool = False) -> tuple[NodeRow, ...]:
    """Return nodes that are up or in trouble; with `everything`, all."""
    machines = _by_node(sheet.machines)
    rows = [(node, machines.get(node.name)) for node in sheet.nodes]
    return tuple(
        _node_row(node, machine, sheet.at)
        for node, machine in rows
        if everything or machine is not None or not _rests(node)
    )


def job_rows(sheet: HeadReport) -> tuple[JobRow, ...]:
    """Return every job that slurmctld remembers, newest last."""
    machines = _by_node(sheet.machines)
    return tuple(
        _job_row(job, [machines[name] for name in job.nodes if name in machines], sheet.at)
        for job in sorted(sheet.jobs, key=_place)
    )


def _place(job: JobReport) -> tuple[int, bool, int]:
    """Return a sort key: by number, an array's tasks together.

    Its waiting tasks come last.
    """
    return job.array or job.id, bool(job.waiting), job.id if job.task is None else job.task


def node_cells(rows: Iterable[NodeRow]) -> list[Sequence[object]]:
    """Return the rows as table cells."""
    return [
        (row.node, row.state, row.instance or "-", row.type or "-", row.zone or "-",
         row.lifecycle or "-", row.usd_per_hour or "-", _age(row.age_seconds), row.reason)
        for row in rows
    ]  # fmt: skip


def job_cells(rows: Iterable[JobRow]) -> list[Sequence[object]]:
    """Return the rows as table cells."""
    return [
        (row.label, row.name, row.user, row.partition, row.state, row.nodes or "-",
         ",".join(row.types) or "-", ",".join(row.zones) or "-", row.lifecycle or "-",
         row.usd_per_hour or "-", _age(row.age_seconds), row.reason)
        for row in rows
    ]  # fmt: skip


def _by_node(machines: Iterable[InstanceReport]) -> dict[str, InstanceReport]:
    live = [item for item in machines if item.state in {"pending", "running"} and item.node]
    return {item.node: item for item in sorted(live, key=lambda item: item.launched_at)}


def _rests(node: NodeReport) -> bool:
    return "POWERED_DOWN" in node.flags and not {"DOWN", "DRAIN"} & set(node.flags)


def _node_row(node: NodeReport, machine: InstanceReport | None, now: float) -> NodeRow:
    if machine is None:
        return NodeRow(node.name, _state(node), reason=node.reason)
    return NodeRow(
        node=node.name,
        state=_state(node),
        instance=machine.id,
        type=machine.type,
        zone=machine.zone,
        lifecycle=machine.lifecycle,
        usd_per_hour=_usd([machine]),
        age_seconds=int(now - machine.launched_at),
        reason="; ".join((*([node.reason] if node.reason else []), *machine.trouble)),
    )


def _job_row(job: JobReport, machines: Sequence[InstanceReport], now: float) -> JobRow:
    since = job.started_at if "RUNNING" in job.states else job.submitted_at
    return JobRow(
        job=job.id,
        label=job.label,
        name=job.name,
        user=job.user,
        partition=job.partition,
        state="+".join(job.states).lower(),
        nodes=job.node_count or len(job.nodes),
        instances=tuple(item.id for item in machines),
        types=tuple(dict.fromkeys(item.type for item in machines)),
        zones=tuple(dict.fromkeys(item.zone for item in machines)),
        lifecycle=",".join(dict.fromkeys(item.lifecycle for item in machines)),
        usd_per_hour=_usd(machines) if machines else "",
        age_seconds=None if since is None else int(now - since),
        reason="" if job.reason == "None" else job.reason,
    )


def _state(node: NodeReport) -> str:
    base = next((word for word in _BASES if word in node.flags), "unknown")
    return "+".join(
        [base, *(flag for flag in _FLAGS if flag in node.flags and flag != base)]
    ).lower()


def _usd(machines: Sequence[InstanceReport]) -> str:
    """Return the sum of their prices; empty if one is unknown."""
    from decimal import Decimal, InvalidOperation

    try:
        total = sum((Decimal(item.price) for item in machines), Decimal(0))
    except InvalidOperation:
        return ""
    return f"{total:.4f}"


def _age(seconds: int | None) -> str:
    return "-" if seconds is None else span(seconds)
