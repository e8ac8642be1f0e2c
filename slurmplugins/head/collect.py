"""Collect the head's facts for people's commands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurmplugins.errors import BadName, EngineError
from slurmplugins.head.report import (
    HeadReport,
    InstanceReport,
    NodeReport,
    PassReport,
    SetbackReport,
    StandingReport,
)
from slurmplugins.model.hostlist import NodeName, compress, expand
from slurmplugins.model.job_id import JobName
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler import console_logs
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.state import launch_budget
from slurmplugins.system import decision_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.execution.engine import Engine
    from slurmplugins.head.job_history import JobReader
    from slurmplugins.head.report import AttemptReport, JobReport
    from slurmplugins.model.instance import Instance, InstanceHealth


_T = TypeVar("_T")

AROUND: Final = 30.0
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


def gather(engine: Engine, jobs: JobReader, subject: Subject, log: Path) -> HeadReport:
    """Collect everything that is known about the subject.

    A part that can't be read is left out, and named in `unread`.
    """
    unread: list[str] = []

    def attempt(read: Callable[[], tuple[_T, ...]]) -> tuple[_T, ...]:
        if subject.state_only:
            return ()
        try:
            return read()
        except EngineError as error:
            unread.append(f"{error.slug}: {error.message}")
            return ()

    health = {item.id: item for item in attempt(engine.cloud.health)}
    record = circuit_breaker.load(engine.state)
    last, now, steady = LastPass.load(engine.state), engine.clock.now(), engine.steady
    machines = attempt(engine.cloud.instances)
    number = subject.job
    known = attempt(lambda: jobs.jobs(number))
    attempts: tuple[AttemptReport, ...] = ()
    if number is not None:
        attempts = attempt(lambda: jobs.attempts(JobName(number, subject.task)))
    return HeadReport(
        at=now,
        cluster=engine.config.cluster,
        nodes=attempt(lambda: _nodes(engine)),
        machines=tuple(_machine(item, health.get(item.id)) for item in machines),
        jobs=known,
        attempts=attempts,
        setbacks=tuple(
            SetbackReport(key, item.code, steady.wall(item.until))
            for key, item in engine.memory.setbacks().items()
        ),
        standings=tuple(
            StandingReport(
                pool,
                item.failures,
                item.since,
                steady.wall(item.shut_until(steady.now(), engine.config.resume_timeout)),
                tuple(f"{one.instance_id} ({one.node}): {one.why}" for one in item.last),
            )
            for pool, item in record.pools.items()
        ),
        last_pass=PassReport(last.at, last.note, last.remarks),
        decisions=_decided(log, subject, known, attempts),
        consoles=_consoles(engine, record, subject),
        unread=tuple(unread),
        unended=launch_budget.why_shut(engine.brake.load(), steady.now()),
    )


def _decided(
    log: Path, subject: Subject, known: Sequence[JobReport], attempts: Sequence[AttemptReport]
) -> tuple[Mapping[str, Any], ...]:
    """Return decisions about the subject or about its attempts' nodes."""
    if subject.task is not None:
        # The log names a task by its own job id, which it gets when it starts.
        own = [one.id for one in known if (one.array, one.task) == (subject.job, subject.task)]
        number = next(iter([*own, *(run.job for run in reversed(attempts))]), None)
        subject = Subject(job=number)
    if subject.job is None and not subject.node:
        return ()
    found = decision_log.about(
        log, lambda item: concerns(item, subject) or bool(befell(item, attempts))
    )
    return tuple(
        {**item, "node": compress(lost)} if (lost := befell(item, attempts)) else item
        for item in found
    )


def concerns(decision: Mapping[str, Any], subject: Subject) -> bool:
    """Return whether a line of the decision log is about the subject."""
    if subject.job is not None:
        return str(subject.job) in _words(decision.get("job")) | _words(decision.get("jobs"))
    if subject.node in _words(decision.get("node")):
        return True
    nodes = decision.get("nodes")
    try:
        return subject.node in (expand(nodes) if isinstance(nodes, str) else _words(nodes))
    except BadName:
        return False


def befell(decision: Mapping[str, Any], attempts: Sequence[AttemptReport]) -> frozenset[NodeName]:
    """Return the attempts' nodes that the decision set DOWN.

    Only attempts that ran on these nodes at that time count.
    """
    at = decision.get("at")
    if decision.get("action") != "MarkDown" or not isinstance(at, int | float):
        return frozenset()
    down = frozenset(_expanded(str(decision.get("nodes") or decision.get("node") or "")))
    none: frozenset[NodeName] = frozenset()
    return none.union(
        *(
            down.intersection(_expanded(run.nodes))
            for run in attempts
            if run.started_at is not None
            and run.started_at - AROUND <= at <= (run.ended_at or math.inf) + AROUND
        )
    )


def _expanded(hostlist: str) -> tuple[NodeName, ...]:
    try:
        return expand(hostlist) if hostlist else ()
    except BadName:
        return ()


def _words(value: object) -> frozenset[str]:
    """Return a list's members; older logs have the list as text."""
    if isinstance(value, list | tuple):
        return frozenset(map(str, value))
    return frozenset(str(value).strip("[]()").replace("'", "").replace(",", " ").split())


def _nodes(engine: Engine) -> tuple[NodeReport, ...]:
    owner, static = engine.config.pool_by_node, engine.config.static
    return tuple(
        NodeReport(
            name=node.name,
            flags=tuple(sorted(node.flags)),
            reason=node.reason,
            pool=owner.get(NodeName(node.name), ""),
            instance_id=node.instance_id,
            static=node.name in static,
        )
        for node in engine.slurm.nodes()
        if node.name
    )


def _machine(item: Instance, health: InstanceHealth | None) -> InstanceReport:
    trouble: list[str] = []
    if health is not None:
        trouble += ["is being taken back"] * health.notice
        trouble += ["fails its status checks"] * (health.impaired_since is not None)
        trouble += [f"is scheduled for {event.code}" for event in health.events]
    return InstanceReport(
        id=item.id,
        node=item.node or "",
        pool=item.pool,
        role=item.role,
        state=item.unclear or item.state.value,
        type=item.type,
        zone=item.zone,
        lifecycle=item.lifecycle.value,
        price=item.price,
        address=item.address,
        launched_at=item.launched_at,
        end_code=item.end_code,
        trouble=tuple(trouble),
    )


def _consoles(
    engine: Engine, record: circuit_breaker.Record, subject: Subject
) -> dict[str, tuple[str, ...]]:
    """Return the last console lines of failed instances.

    With a node as subject, only instances for that node count. The latest three are taken.
    """
    failed = [one for pool in record.pools.values() for one in pool.last]
    mine = [one for one in failed if subject.node in ("", one.node)][-3:]
    found = {one.instance_id: console_logs.tail(engine.state, one.instance_id) for one in mine}
    return {key: lines for key, lines in found.items() if lines}
