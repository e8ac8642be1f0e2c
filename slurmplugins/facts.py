"""The program that tells people's commands what the head knows, as one JSON object.

python3 -m slurmplugins.facts              everything that is true now
python3 -m slurmplugins.facts job 4711     and what was decided about a job, or a task: 4711_3
python3 -m slurmplugins.facts node gpu-001
python3 -m slurmplugins.facts pass         reconcile's last pass and the pools' standing alone

It changes nothing and asks each of Slurm and EC2 once. What can't be read is in `unread`.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from slurmplugins import brake, consoles, decisions, job_name, names, paths, protection, runtime
from slurmplugins.errors import BadName, EngineError
from slurmplugins.fact_sheet import (
    FactSheet,
    MachineFact,
    NodeFact,
    PassFact,
    SetbackFact,
    StandingFact,
    to_json,
)
from slurmplugins.job_facts import JobReader
from slurmplugins.job_name import JobName
from slurmplugins.log import Log, to_stderr
from slurmplugins.memory import LastPass
from slurmplugins.runner import SystemRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.fact_sheet import AttemptFact, JobFact
    from slurmplugins.health import Health
    from slurmplugins.model import Instance
    from slurmplugins.runtime import Engine

_T = TypeVar("_T")

AROUND: Final = 30.0
"""Seconds between setting a node down and Slurm's record of the attempt that ended with it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What the question is about; neither is set for everything at once. `task`: of array `job`."""

    job: int | None = None
    task: int | None = None
    node: str = ""
    state_only: bool = False


def main() -> None:
    from slurmplugins.clock import SystemClock

    # Only standard error: a question must not leave a mark in the logs it reads.
    log = Log(to_stderr, SystemClock(), {"program": "facts"})

    def work() -> None:
        subject = parse(sys.argv[1:])
        engine = runtime.assemble(log)
        jobs = JobReader(SystemRunner(), engine.config.slurm_bin)
        sheet = gather(engine, jobs, subject, paths.DECISIONS)
        sys.stdout.write(json.dumps(to_json(sheet)) + "\n")

    sys.exit(runtime.guarded(log, work))


def parse(words: list[str]) -> Subject:
    """Raises BadName for anything but what this module's docstring shows."""
    match words:
        case []:
            return Subject()
        case ["pass"]:
            return Subject(state_only=True)
        case ["job", name]:
            job = job_name.parse(name)
            return Subject(job=job.number, task=job.task)
        case ["node", name]:
            return Subject(node=names.parse(name))
    raise BadName(f"not a question: {' '.join(words)[:80]!r}")


def gather(engine: Engine, jobs: JobReader, subject: Subject, log: Path) -> FactSheet:
    """Everything there is to know; a part that can't be read is named, and left out."""
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
    record = protection.load(engine.state)
    last, now, steady = LastPass.load(engine.state), engine.clock.now(), engine.steady
    machines = attempt(engine.cloud.instances)
    number = subject.job
    known = attempt(lambda: jobs.jobs(number))
    attempts: tuple[AttemptFact, ...] = ()
    if number is not None:
        attempts = attempt(lambda: jobs.attempts(JobName(number, subject.task)))
    return FactSheet(
        at=now,
        cluster=engine.config.cluster,
        nodes=attempt(lambda: _nodes(engine)),
        machines=tuple(_machine(item, health.get(item.id)) for item in machines),
        jobs=known,
        attempts=attempts,
        setbacks=tuple(
            SetbackFact(key, item.code, steady.wall(item.until))
            for key, item in engine.memory.setbacks().items()
        ),
        standings=tuple(
            StandingFact(
                pool,
                item.failures,
                item.since,
                steady.wall(item.shut_until(steady.now(), engine.config.resume_timeout)),
                tuple(f"{one.instance_id} ({one.node}): {one.why}" for one in item.last),
            )
            for pool, item in record.pools.items()
        ),
        last_pass=PassFact(last.at, last.note, last.remarks),
        decisions=_decided(log, subject, known, attempts),
        consoles=_consoles(engine, record, subject),
        unread=tuple(unread),
        unended=brake.why_shut(engine.brake.load(), steady.now()),
    )


def _decided(
    log: Path, subject: Subject, known: Sequence[JobFact], attempts: Sequence[AttemptFact]
) -> tuple[Mapping[str, Any], ...]:
    """What was decided about the subject, or befell its attempts."""
    if subject.task is not None:
        # The log has a task by the number of its own that it gets when it starts.
        own = [one.id for one in known if (one.array, one.task) == (subject.job, subject.task)]
        number = next(iter([*own, *(run.job for run in reversed(attempts))]), None)
        subject = Subject(job=number)
    if subject.job is None and not subject.node:
        return ()
    found = decisions.about(
        log, lambda item: concerns(item, subject) or bool(befell(item, attempts))
    )
    return tuple(
        {**item, "node": names.compress(lost)} if (lost := befell(item, attempts)) else item
        for item in found
    )


def concerns(decision: Mapping[str, Any], subject: Subject) -> bool:
    """Whether a line of the decision log is about the subject."""
    if subject.job is not None:
        return str(subject.job) in _words(decision.get("job")) | _words(decision.get("jobs"))
    if subject.node in _words(decision.get("node")):
        return True
    nodes = decision.get("nodes")
    try:
        return subject.node in (names.expand(nodes) if isinstance(nodes, str) else _words(nodes))
    except BadName:
        return False


def befell(
    decision: Mapping[str, Any], attempts: Sequence[AttemptFact]
) -> frozenset[names.NodeName]:
    """The nodes that the decision set down while one of the attempts was on them."""
    at = decision.get("at")
    if decision.get("action") != "MarkDown" or not isinstance(at, int | float):
        return frozenset()
    down = frozenset(_expanded(str(decision.get("nodes") or decision.get("node") or "")))
    none: frozenset[names.NodeName] = frozenset()
    return none.union(
        *(
            down.intersection(_expanded(run.nodes))
            for run in attempts
            if run.started_at is not None
            and run.started_at - AROUND <= at <= (run.ended_at or math.inf) + AROUND
        )
    )


def _expanded(hostlist: str) -> tuple[names.NodeName, ...]:
    try:
        return names.expand(hostlist) if hostlist else ()
    except BadName:
        return ()


def _words(value: object) -> frozenset[str]:
    """The members of a list, also of one that an older log has as text."""
    if isinstance(value, list | tuple):
        return frozenset(map(str, value))
    return frozenset(str(value).strip("[]()").replace("'", "").replace(",", " ").split())


def _nodes(engine: Engine) -> tuple[NodeFact, ...]:
    owner, static = engine.config.pool_by_node, engine.config.static
    return tuple(
        NodeFact(
            name=node.name,
            flags=tuple(sorted(node.flags)),
            reason=node.reason,
            pool=owner.get(names.NodeName(node.name), ""),
            instance_id=node.instance_id,
            static=node.name in static,
        )
        for node in engine.slurm.nodes()
        if node.name
    )


def _machine(item: Instance, health: Health | None) -> MachineFact:
    trouble: list[str] = []
    if health is not None:
        trouble += ["is being taken back"] * health.notice
        trouble += ["fails its status checks"] * (health.impaired_since is not None)
        trouble += [f"is scheduled for {event.code}" for event in health.events]
    return MachineFact(
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
    engine: Engine, record: protection.Record, subject: Subject
) -> dict[str, tuple[str, ...]]:
    """The last words of the machines that never came up as this node, or at all lately."""
    failed = [one for pool in record.pools.values() for one in pool.last]
    mine = [one for one in failed if subject.node in ("", one.node)][-3:]
    found = {one.instance_id: consoles.tail(engine.state, one.instance_id) for one in mine}
    return {key: lines for key, lines in found.items() if lines}


if __name__ == "__main__":
    main()
