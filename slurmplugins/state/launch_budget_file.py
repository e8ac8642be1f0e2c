"""The launch budget's record on the head's disk, which its programs share; safe to lose.

Also here: the instances that the launches of one process started, by node. Some of them were
terminated since.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import CloudError, Denied
from slurmplugins.model import json_input
from slurmplugins.state import launch_budget
from slurmplugins.state.journal import LISTING_DELAY_SECONDS
from slurmplugins.state.launch_budget_record import (
    LaunchHistory,
    Record,
    RefusedTerminations,
    UnresolvedLaunch,
)
from slurmplugins.state.persistent_clock import PersistentClock
from slurmplugins.system.files import locked, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.errors import EngineError
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import Failure, JobLaunch, JobRequest, JobResults, LaunchRequest
    from slurmplugins.model.node import Node
    from slurmplugins.state.launch_budget import ScreenedLaunches
    from slurmplugins.state.launch_budget_record import Rate
    from slurmplugins.system.clock import Clock


_DAMAGE_ERRORS: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class StartedInstances:
    """Instances that the launches of one process started.

    Safe between threads: one thread at a time works on a node.
    """

    certain_counts: Counter[NodeName] = field(default_factory=Counter)
    """Instances that surely started, by node."""
    unanswered_launches: dict[str, Sequence[NodeName]] = field(default_factory=dict)
    """Nodes of launches without an answer, by launch id."""

    def record_failure(
        self, request: LaunchRequest, error: EngineError, *, is_unanswered: bool
    ) -> None:
        """Count the instances of a failed launch.

        `is_unanswered` means that one of its calls got no answer.
        """
        if isinstance(error, CloudError) and error.instances_started:
            self.certain_counts.update(islice(cycle(request.nodes), error.instances_started))
        elif is_unanswered and not (isinstance(error, CloudError) and error.resolves_launch):
            self.unanswered_launches[request.attempt] = request.nodes

    def count_for(self, nodes: Collection[NodeName]) -> int:
        """Return the number of instances that surely started for these nodes."""
        return sum(self.certain_counts.get(node, 0) for node in nodes)

    def unresolved_for(self, nodes: Collection[NodeName]) -> Mapping[str, int]:
        """Return, by launch id, how many instances may have started."""
        own_nodes = frozenset(nodes)
        counts = {
            launch_id: len(own_nodes.intersection(request_nodes))
            for launch_id, request_nodes in list(self.unanswered_launches.items())
        }
        return {launch_id: count for launch_id, count in counts.items() if count}


class LaunchBudget:
    """The launch budget in one process.

    If the file can't be used, launches and terminations go on.
    """

    def __init__(self, state: Path, clock: Clock) -> None:
        self._path = state / "brake.json"
        self._lock = state / "brake.lock"
        self._persistent_clock = PersistentClock(state, clock)
        self._charged_nodes: dict[int, tuple[NodeName, ...]] = {}
        self._het_jobs: dict[int, int] = {}
        self._served_nodes: set[NodeName] = set()
        self.started = StartedInstances()

    def screen(
        self,
        launches: Sequence[JobLaunch],
        rate: Rate,
        protected_pools: Collection[str],
        job_requests: Sequence[JobRequest] = (),
    ) -> ScreenedLaunches:
        """Screen the launches, and count those that may go on in full.

        `job_requests` tell which launches belong to one het job.
        """
        het_job_by_job = {job_request.job: job_request.het_job for job_request in job_requests}
        self._het_jobs = {
            job: het_job for job, het_job in het_job_by_job.items() if job is not None and het_job
        }
        with self._locked():
            previous = self.load()
            now = self._persistent_clock.now()
            screened = launch_budget.screen(
                previous, launches, now, rate, protected_pools, het_jobs=self._het_jobs
            )
            self._save(previous, screened.record)
        for job in screened.permitted:
            request_id = self._request_id(job.job)
            if request_id is not None and request_id in screened.record.jobs:
                self._charged_nodes[request_id] = (
                    *self._charged_nodes.get(request_id, ()),
                    *launch_budget.planned_nodes(job),
                )
        return screened

    def _request_id(self, job: int | None) -> int | None:
        """Return the het job's number for a component, else the job's number."""
        return None if job is None else self._het_jobs.get(job, job)

    def record_results(self, results: JobResults, rate: Rate) -> tuple[Failure, ...]:
        """Count the instances that were started for the jobs of these results.

        Returns the failures. If EC2 was too slow for a job, its failure becomes `rate-too-low`.
        """
        self._served_nodes.update(results.served_nodes)
        request_ids = (self._request_id(item.job) for item in results.failures)
        failed_requests = {request_id for request_id in request_ids if request_id is not None}
        served_requests = {
            job
            for job, nodes in self._charged_nodes.items()
            if self._served_nodes.issuperset(nodes)
        }
        nodes = {
            job: self._charged_nodes.pop(job)
            for job in self._charged_nodes.keys() & (failed_requests | served_requests)
        }
        if not nodes:
            return results.failures
        charged_counts = {job: len(own_nodes) for job, own_nodes in nodes.items()}
        counts = {job: self.started.count_for(own_nodes) for job, own_nodes in nodes.items()}
        unresolved_counts = {
            job: self.started.unresolved_for(own_nodes) for job, own_nodes in nodes.items()
        }
        failures = tuple(
            launch_budget.as_rate_failure(
                item, charged_counts[request_id], counts[request_id], rate
            )
            if (request_id := self._request_id(item.job)) is not None
            and request_id in charged_counts
            else item
            for item in results.failures
        )

        def update(record: Record) -> Record:
            now = self._persistent_clock.now()
            record = launch_budget.add_unresolved(record, unresolved_counts, now)
            record = launch_budget.record_results(record, charged_counts, counts, failed_requests)
            return launch_budget.record_rate_failures(record, failures, self._het_jobs)

        self._change(update)
        return failures

    def record_held(self, jobs: Collection[int]) -> None:
        """Record that Slurm holds these jobs."""
        if jobs:
            self._change(lambda record: launch_budget.mark_held(record, jobs))

    def update_from_listing(
        self, instances: Iterable[Instance], nodes: Mapping[str, Node], listed_at: float
    ) -> None:
        """Forget jobs whose nodes are all up, and resolve unanswered launches.

        `listed_at` is the time at which EC2 had listed the instances, by the monotonic clock.
        """
        if not self._path.exists():
            return
        listed_launches = {item.attempt for item in instances}
        resolved_before = self._persistent_clock.at(listed_at) - LISTING_DELAY_SECONDS

        def update(record: Record) -> Record:
            record = launch_budget.resolve_launches(record, listed_launches, resolved_before)
            return launch_budget.forget_begun(record, nodes, self._persistent_clock.now())

        self._change(update)

    def forget_begun(self, read_begun_jobs: Callable[[], Collection[int]]) -> None:
        """Forget jobs that have begun on nodes which others left up.

        Slurm is asked only if there may be such a job.
        """
        if self._path.exists() and launch_budget.needs_begun_jobs(self.load()):
            begun_jobs = read_begun_jobs()
            self._change(lambda record: launch_budget.forget_jobs(record, begun_jobs))

    def record_terminations(
        self, terminated_ids: Collection[str], error: CloudError | None
    ) -> None:
        """Record whether EC2 terminated instances.

        An error that is about one instance only is ignored: it tells nothing about the next one.
        """
        if terminated_ids:
            if self._path.exists():
                self._change(lambda record: launch_budget.record_terminations(record, 0.0, ""))
        elif error is not None and (error.retryable or isinstance(error, Denied)):
            code = error.code
            self._change(
                lambda record: launch_budget.record_terminations(
                    record, self._persistent_clock.now(), code
                )
            )

    def load(self) -> Record:
        """Return the record, without its unreadable parts."""
        jobs: dict[int, LaunchHistory] = {}
        terminations = RefusedTerminations()
        with contextlib.suppress(*_DAMAGE_ERRORS):
            data = json_input.loads(self._path.read_bytes())
            with contextlib.suppress(*_DAMAGE_ERRORS):
                terminations = _read_terminations(data["ends"])
            for job, item in data["jobs"].items():
                with contextlib.suppress(*_DAMAGE_ERRORS):
                    jobs[int(job)] = _read_job(item)
        return Record(jobs, terminations)

    def _change(self, update: Callable[[Record], Record]) -> None:
        with self._locked():
            previous = self.load()
            self._save(previous, update(previous))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                stack.enter_context(locked(self._lock))
            yield

    def _save(self, previous: Record, record: Record) -> None:
        if record == previous:
            return
        with contextlib.suppress(OSError):  # safe to lose: a full disk must not stop a launch
            write_atomically(self._path, json.dumps(asdict(record)).encode(), mode=0o640)


def _read_job(item: dict[str, Any]) -> LaunchHistory:
    """Read the launches of one job. Raises ValueError or TypeError."""
    history = LaunchHistory(**item)
    if not all(isinstance(text, str) for text in (history.nodes, history.slug, history.message)):
        raise TypeError("not a text")
    requested, started_count = (
        int(json_input.finite(history.asked)),
        int(json_input.finite(history.started)),
    )
    if requested < 0 or started_count < 0:
        raise ValueError("not a number of instances")
    since, at = json_input.finite(history.since), json_input.finite(history.at)
    return replace(
        history,
        asked=requested,
        started=started_count,
        since=since,
        at=at,
        held=history.held is True,
        doubts=tuple(_read_unresolved(launch) for launch in history.doubts),
    )


def _read_unresolved(item: Any) -> UnresolvedLaunch:
    launch = UnresolvedLaunch(**item)
    if not isinstance(launch.attempt, str):
        raise TypeError("not an attempt")
    count = max(0, int(json_input.finite(launch.count)))
    return replace(launch, count=count, at=json_input.finite(launch.at))


def _read_terminations(item: dict[str, Any]) -> RefusedTerminations:
    terminations = RefusedTerminations(**item)
    count, since = int(json_input.finite(terminations.count)), json_input.finite(terminations.since)
    return replace(
        terminations,
        count=count,
        code=str(terminations.code),
        since=since,
        at=json_input.finite(terminations.at),
    )
