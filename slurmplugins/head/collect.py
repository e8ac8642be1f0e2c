"""Collect the head's report for people's commands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurmplugins.errors import BadName, EngineError, SlurmUnreachable
from slurmplugins.head.report import (
    BreakerReport,
    HeadReport,
    InstanceReport,
    NodeReport,
    PassReport,
    UnavailabilityReport,
)
from slurmplugins.model import json_input
from slurmplugins.model.hostlist import NodeName, compress, expand
from slurmplugins.model.node import JobId
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler import console_logs
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.slurm import login_reports
from slurmplugins.state import launch_budget
from slurmplugins.system import decision_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.execution.engine import Engine
    from slurmplugins.head.job_history import JobReader
    from slurmplugins.head.report import AttemptReport, BurstReport, JobReport
    from slurmplugins.model.data_volume import FreeShares
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.node import Node
    from slurmplugins.slurm.node_reader import NodeReader


_T = TypeVar("_T")

ATTEMPT_MARGIN: Final = 30.0
"""Seconds between setting a node DOWN and Slurm's record of the attempt that ended with it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a question. With neither job nor node it is everything."""

    job: int | None = None
    task: int | None = None
    """A task of the array `job`."""
    node: str = ""
    state_only: bool = False
    """Only the head's own state files are read, not Slurm or EC2."""


def gather(
    engine: Engine,
    nodes: NodeReader,
    jobs: JobReader,
    subject: Subject,
    log: Path,
    *,
    bursts: Callable[[int], tuple[BurstReport, ...]] = lambda _: (),
    denied: Callable[[], Mapping[str, tuple[str, ...]]] = dict,
    budget_holds: Callable[[], tuple[int, ...]] = tuple,
    data_volume: Callable[[], FreeShares | None] = lambda: None,
) -> HeadReport:
    """Collect everything that is known about the subject.

    A part that can't be read is left out, and named in `unread`. `bursts` returns the burst
    governor's decisions about a job, `denied` the accounts that budgets keep from partitions.
    `budget_holds` returns the jobs that budgets of projects hold, `data_volume` what is free of it.
    """
    parts = _Parts(state_only=subject.state_only)
    record, last_pass = circuit_breaker.load(engine.state), LastPass.load(engine.state)
    instance_reports = _instance_reports(parts, engine.cloud)
    job = subject.job
    job_reports = parts.ask_slurmctld(lambda: jobs.jobs(job))
    name = None if job is None else JobId(job, subject.task)
    attempts = () if name is None else parts.read(lambda: jobs.attempts(name))
    node_reports = parts.ask_slurmctld(lambda: _node_reports(engine.config, nodes.nodes()))
    burst_decisions = () if job is None else parts.ask_slurmctld(lambda: bursts(job))
    denied_accounts = parts.read(lambda: tuple(denied().items()))
    held_jobs = parts.read(budget_holds)
    return HeadReport(
        at=engine.clock.now(),
        cluster=engine.config.cluster,
        nodes=node_reports,
        node_source=nodes.source,
        machines=instance_reports,
        jobs=job_reports,
        attempts=attempts,
        setbacks=_unavailability_reports(engine),
        standings=_breaker_reports(engine, record),
        last_pass=PassReport(last_pass.at, last_pass.blocked_by, last_pass.warnings),
        decisions=_decisions(log, subject, job_reports, attempts),
        consoles=_consoles(engine, record, subject),
        unread=tuple(parts.unread),
        unended=launch_budget.block_reason(
            engine.launch_budget.load(), engine.persistent_clock.now()
        ),
        login_nodes=login_reports.read(engine.login_reports),
        bursts=burst_decisions,
        denied=dict(denied_accounts),
        budget_holds=held_jobs,
        data_volume=data_volume(),
    )


class _Parts:
    """The parts of a report. One that can't be read is empty, and its error is in `unread`."""

    def __init__(self, *, state_only: bool) -> None:
        self.unread: list[str] = []
        self._state_only = state_only
        self._slurmctld_is_away = False

    def read(self, read: Callable[[], tuple[_T, ...]]) -> tuple[_T, ...]:
        """Return the part that `read` returns."""
        if self._state_only:
            return ()
        try:
            return read()
        except EngineError as error:
            self.unread.append(f"{error.reason_code}: {error.message}")
            return ()

    def ask_slurmctld(self, read: Callable[[], tuple[_T, ...]]) -> tuple[_T, ...]:
        """Return the part, unless slurmctld has not answered for an earlier one.

        A person would wait half a minute for each part.
        """
        if self._slurmctld_is_away:
            return ()

        def noting() -> tuple[_T, ...]:
            try:
                return read()
            except SlurmUnreachable:
                self._slurmctld_is_away = True
                raise

        return self.read(noting)


def _unavailability_reports(engine: Engine) -> tuple[UnavailabilityReport, ...]:
    clock = engine.persistent_clock
    return tuple(
        UnavailabilityReport(key, item.code, clock.wall(item.until))
        for key, item in engine.unavailable_offerings.entries().items()
    )


def _breaker_reports(engine: Engine, record: circuit_breaker.Record) -> tuple[BreakerReport, ...]:
    clock, resume_timeout = engine.persistent_clock, engine.config.resume_timeout
    return tuple(
        BreakerReport(
            pool,
            breaker.failures,
            breaker.since,
            clock.wall(breaker.shut_until(clock.now(), resume_timeout)),
            tuple(f"{item.instance_id} ({item.node}): {item.why}" for item in breaker.last),
        )
        for pool, breaker in record.pools.items()
    )


def _decisions(
    log: Path, subject: Subject, job_reports: Sequence[JobReport], attempts: Sequence[AttemptReport]
) -> tuple[Mapping[str, Any], ...]:
    """Return decisions about the subject or about its attempts' nodes."""
    if subject.task is not None:
        # The log names a task by its own job id, which it gets when it starts.
        task = (subject.job, subject.task)
        task_ids = [job.id for job in job_reports if (job.array, job.task) == task]
        number = next(iter([*task_ids, *(attempt.job for attempt in reversed(attempts))]), None)
        subject = Subject(job=number)
    if subject.job is None and not subject.node:
        return ()
    decisions = decision_log.recent_decisions(
        log, lambda item: concerns(item, subject) or bool(nodes_set_down(item, attempts))
    )
    return tuple(
        {**item, "node": compress(nodes)} if (nodes := nodes_set_down(item, attempts)) else item
        for item in decisions
    )


def concerns(decision: Mapping[str, Any], subject: Subject) -> bool:
    """Return whether a line of the decision log is about the subject."""
    if subject.job is not None:
        return str(subject.job) in _members(decision.get("job")) | _members(decision.get("jobs"))
    if subject.node in _members(decision.get("node")):
        return True
    nodes = decision.get("nodes")
    try:
        return subject.node in (expand(nodes) if isinstance(nodes, str) else _members(nodes))
    except BadName:
        return False


def nodes_set_down(
    decision: Mapping[str, Any], attempts: Sequence[AttemptReport]
) -> frozenset[NodeName]:
    """Return the attempts' nodes that the decision set DOWN.

    Only attempts that ran on these nodes at that time count.
    """
    if decision.get("action") != "MarkDown":
        return frozenset()
    try:
        at = json_input.finite(decision.get("at"))
    except ValueError:
        return frozenset()
    down_nodes = frozenset(_expand(str(decision.get("nodes") or decision.get("node") or "")))
    return frozenset(
        node
        for attempt in attempts
        if attempt.started_at is not None
        and attempt.started_at <= at + ATTEMPT_MARGIN
        and at - ATTEMPT_MARGIN <= (attempt.ended_at or math.inf)
        for node in down_nodes.intersection(_expand(attempt.nodes))
    )


def _expand(hostlist: str) -> tuple[NodeName, ...]:
    try:
        return expand(hostlist) if hostlist else ()
    except BadName:
        return ()


def _members(value: object) -> frozenset[str]:
    """Return a list's members; older logs have the list as text."""
    if isinstance(value, list | tuple):
        return frozenset(map(str, value))
    return frozenset(str(value).strip("[]()").replace("'", "").replace(",", " ").split())


def _node_reports(config: BurstConfig, nodes: Iterable[Node]) -> tuple[NodeReport, ...]:
    pool_by_node, static_nodes = config.pool_by_node, config.static_nodes
    return tuple(
        NodeReport(
            name=node.name,
            flags=tuple(sorted(node.flags)),
            reason=node.reason,
            pool=pool_by_node.get(NodeName(node.name), ""),
            static=node.name in static_nodes,
        )
        for node in nodes
        if node.name
    )


def _instance_reports(parts: _Parts, cloud: Cloud) -> tuple[InstanceReport, ...]:
    health = {item.id: item for item in parts.read(cloud.health)}
    instances = parts.read(cloud.instances)
    return tuple(_instance_report(item, health.get(item.id)) for item in instances)


def _instance_report(instance: Instance, health: InstanceHealth | None) -> InstanceReport:
    trouble: list[str] = []
    if health is not None:
        trouble += ["is being taken back"] * health.notice
        trouble += ["fails its status checks"] * (health.impaired_since is not None)
        trouble += [f"is scheduled for {event.code}" for event in health.events]
    return InstanceReport(
        id=instance.id,
        node=instance.node or "",
        pool=instance.pool,
        role=instance.role,
        state=instance.unclear or instance.state.value,
        type=instance.type,
        zone=instance.zone,
        lifecycle=instance.lifecycle.value,
        price=instance.price,
        address=instance.address,
        launched_at=instance.launched_at,
        end_code=instance.end_code,
        trouble=tuple(trouble),
    )


def _consoles(
    engine: Engine, record: circuit_breaker.Record, subject: Subject
) -> dict[str, tuple[str, ...]]:
    """Return the last console lines of failed instances.

    With a node as subject, only instances for that node count. The latest three are taken.
    """
    failures = [item for pool in record.pools.values() for item in pool.last]
    latest_failures = [item for item in failures if subject.node in ("", item.node)][-3:]
    consoles = {
        failure.instance_id: console_logs.tail(engine.state, failure.instance_id)
        for failure in latest_failures
    }
    return {key: lines for key, lines in consoles.items() if lines}
