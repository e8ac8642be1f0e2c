"""The launch budget's record on the head's disk, which its programs share; safe to lose.

Also here: the instances that the launches of one run started, by node. Some of them were terminated
since.
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
from slurmplugins.state.journal import SETTLE_SECONDS
from slurmplugins.state.launch_budget import Doubt, Record, RefusedEnds, Tries
from slurmplugins.state.persistent_clock import Steady
from slurmplugins.system.files import locked, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.errors import EngineError
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import Failure, JobLaunch, JobRequest, LaunchRequest, Results
    from slurmplugins.model.node import Node
    from slurmplugins.state.launch_budget import Rate, Screened
    from slurmplugins.system.clock import Clock


_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Starts:
    """Instances that the launches of one run started.

    Safe between threads: one thread at a time works on a node.
    """

    sure: Counter[NodeName] = field(default_factory=Counter)
    """Instances that surely started, by node."""
    unanswered: dict[str, Sequence[NodeName]] = field(default_factory=dict)
    """Nodes of launches without an answer, by attempt."""

    def failed(self, request: LaunchRequest, error: EngineError, *, silent: bool) -> None:
        """Count the instances of a failed launch.

        `silent` means that one of its calls got no answer.
        """
        if isinstance(error, CloudError) and error.started:
            self.sure.update(islice(cycle(request.nodes), error.started))
        elif silent and not (isinstance(error, CloudError) and error.settles):
            self.unanswered[request.attempt] = request.nodes

    def of(self, nodes: Collection[NodeName]) -> int:
        """Return the number of instances that surely started for these nodes."""
        return sum(self.sure.get(node, 0) for node in nodes)

    def doubtful(self, nodes: Collection[NodeName]) -> Mapping[str, int]:
        """Return by attempt the number that may have started for these nodes."""
        mine = frozenset(nodes)
        counts = {
            attempt: len(mine.intersection(asked))
            for attempt, asked in list(self.unanswered.items())
        }
        return {attempt: count for attempt, count in counts.items() if count}


class Brake:
    """The launch budget in one run of a program.

    If the file can't be used, launches and terminations go on.
    """

    def __init__(self, state: Path, clock: Clock) -> None:
        self._path = state / "brake.json"
        self._lock = state / "brake.lock"
        self._steady = Steady(state, clock)
        self._charged: dict[int, tuple[NodeName, ...]] = {}
        self._whole: dict[int, int] = {}
        self._served: set[NodeName] = set()

    def gate(
        self,
        launches: Sequence[JobLaunch],
        rate: Rate,
        governed: Collection[str],
        asks: Sequence[JobRequest] = (),
    ) -> Screened:
        """Screen the launches, and count those that may go on in full.

        `asks` tell which launches belong to one het job.
        """
        of = {ask.job: ask.whole for ask in asks}
        self._whole = {job: whole for job, whole in of.items() if job is not None and whole}
        with self._held():
            before = self.load()
            now = self._steady.now()
            found = launch_budget.screen(before, launches, now, rate, governed, whole=self._whole)
            self._save(before, found.record)
        for job in found.let:
            request = self._request(job.job)
            if request is not None and request in found.record.jobs:
                self._charged[request] = (
                    *self._charged.get(request, ()),
                    *launch_budget.planned(job),
                )
        return found

    def _request(self, job: int | None) -> int | None:
        """Return the het job's number for a component, else the job's number."""
        return None if job is None else self._whole.get(job, job)

    def settled(self, results: Results, started: Starts, rate: Rate) -> tuple[Failure, ...]:
        """Count the instances that were started for the jobs of these results.

        Returns the failures. If EC2 was too slow for a job, its failure becomes `rate-too-low`.
        """
        self._served.update(results.served)
        requests = (self._request(item.job) for item in results.failures)
        told = {request for request in requests if request is not None}
        over = {job for job, nodes in self._charged.items() if self._served.issuperset(nodes)}
        nodes = {job: self._charged.pop(job) for job in self._charged.keys() & (told | over)}
        if not nodes:
            return results.failures
        charged = {job: len(mine) for job, mine in nodes.items()}
        counts = {job: started.of(mine) for job, mine in nodes.items()}
        doubtful = {job: started.doubtful(mine) for job, mine in nodes.items()}
        failures = tuple(
            launch_budget.slow(item, charged[request], counts[request], rate)
            if (request := self._request(item.job)) is not None and request in charged
            else item
            for item in results.failures
        )

        def learn(record: Record) -> Record:
            now = self._steady.now()
            record = launch_budget.doubted(record, doubtful, now)
            record = launch_budget.settle(record, charged, counts, told)
            return launch_budget.barred(record, failures, self._whole)

        self._change(learn)
        return failures

    def held(self, jobs: Collection[int]) -> None:
        """Record that Slurm holds these jobs."""
        if jobs:
            self._change(lambda record: launch_budget.held(record, jobs))

    def learn(
        self, instances: Iterable[Instance], nodes: Mapping[str, Node], listed_at: float
    ) -> None:
        """Forget jobs whose nodes are all up, and resolve unanswered launches.

        `listed_at` is the time at which EC2 had listed the instances, by the monotonic clock.
        """
        if not self._path.exists():
            return
        attempts = {item.attempt for item in instances}
        settled = self._steady.at(listed_at) - SETTLE_SECONDS

        def change(record: Record) -> Record:
            record = launch_budget.resolved(record, attempts, settled)
            return launch_budget.begun(record, nodes, self._steady.now())

        self._change(change)

    def heard(self, over: Collection[str], error: CloudError | None) -> None:
        """Record whether EC2 terminated instances.

        An error that is about one instance only is ignored: it tells nothing about the next one.
        """
        if over:
            if self._path.exists():
                self._change(lambda record: launch_budget.heard(record, 0.0, ""))
        elif error is not None and (error.retryable or isinstance(error, Denied)):
            code = error.code
            self._change(lambda record: launch_budget.heard(record, self._steady.now(), code))

    def load(self) -> Record:
        """Return the record, without its unreadable parts."""
        jobs: dict[int, Tries] = {}
        ends = RefusedEnds()
        with contextlib.suppress(*_DAMAGED):
            data = json_input.loads(self._path.read_bytes())
            with contextlib.suppress(*_DAMAGED):
                ends = _ends(data["ends"])
            for job, item in data["jobs"].items():
                with contextlib.suppress(*_DAMAGED):
                    jobs[int(job)] = _tries(item)
        return Record(jobs, ends)

    def _change(self, change: Callable[[Record], Record]) -> None:
        with self._held():
            before = self.load()
            self._save(before, change(before))

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                stack.enter_context(locked(self._lock))
            yield

    def _save(self, before: Record, after: Record) -> None:
        if after == before:
            return
        with contextlib.suppress(OSError):  # safe to lose: a full disk must not stop a launch
            write_atomically(self._path, json.dumps(asdict(after)).encode(), mode=0o640)


def _tries(item: dict[str, Any]) -> Tries:
    """Read the launches of one job. Raises ValueError or TypeError."""
    tries = Tries(**item)
    if not all(isinstance(text, str) for text in (tries.nodes, tries.slug, tries.message)):
        raise TypeError("not a text")
    asked, started = int(json_input.finite(tries.asked)), int(json_input.finite(tries.started))
    if asked < 0 or started < 0:
        raise ValueError("not a number of instances")
    since, at = json_input.finite(tries.since), json_input.finite(tries.at)
    return replace(
        tries,
        asked=asked,
        started=started,
        since=since,
        at=at,
        held=tries.held is True,
        doubts=tuple(_doubt(doubt) for doubt in tries.doubts),
    )


def _doubt(item: Any) -> Doubt:
    doubt = Doubt(**item)
    if not isinstance(doubt.attempt, str):
        raise TypeError("not an attempt")
    count = max(0, int(json_input.finite(doubt.count)))
    return replace(doubt, count=count, at=json_input.finite(doubt.at))


def _ends(item: dict[str, Any]) -> RefusedEnds:
    ends = RefusedEnds(**item)
    count, since = int(json_input.finite(ends.count)), json_input.finite(ends.since)
    return replace(
        ends, count=count, code=str(ends.code), since=since, at=json_input.finite(ends.at)
    )
