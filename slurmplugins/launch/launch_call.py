"""Make one launch safely: journal it before each call, and repeat it with the same token.

Also here: what one process does with its instances (retag, terminate), and the launches of earlier
processes whose outcome is unknown. Safe between threads, as its parts are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import random
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import error_codes
from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    EngineError,
    NoCredentials,
    SlurmError,
    SomeNotTerminated,
    StateError,
    TooLate,
)
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment, EndCause, assignments
from slurmplugins.slurm.node_queries import awaited_nodes
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import LaunchRequest, LaunchResult
    from slurmplugins.state.journal_view import JournalView
    from slurmplugins.state.launch_budget_file import LaunchBudget
    from slurmplugins.state.launch_budget_record import Rate
    from slurmplugins.system.logger import Log


UNANSWERED_TRIES: Final = 5
"""Tries of one call that got no answer, or lacked credentials, over about 15 s in all. A throttled
call is repeated for as long as the process has time. Its outcome is certain, and tokens come back.
"""

MAX_LOGGED: Final = 20
"""Instances that a line of the log names. A call's own line says how many there were."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 20.0

TERMINATE_TRIES: Final = 4
"""Tries of a termination. An instance launched a second ago may not be listed yet, and only listed
instances can be terminated."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The values that all launches of one ResumeProgram process share."""

    engine: Engine
    process_id: str
    deadline: float
    """The monotonic time after which no further offering is tried."""
    call_deadline: float
    """The monotonic time after which no call is made: Slurm has given up on the nodes."""
    rate: Rate
    launch_budget: LaunchBudget

    @property
    def log(self) -> Log:
        return self.engine.log.bind(run=self.process_id)

    @property
    def out_of_time(self) -> bool:
        """Return whether the time for finding capacity is spent."""
        return self.engine.clock.monotonic() >= self.deadline

    def pauses(self) -> Iterator[float]:
        """Sleep longer each time, never past the deadline.

        Yields each pause in seconds, before jitter.
        """
        clock, pause = self.engine.clock, FIRST_PAUSE
        while True:
            remaining = self.deadline - clock.monotonic()
            jitter = 0.5 + random()  # noqa: S311 - no secret
            clock.sleep(max(0.0, min(pause * jitter, remaining)))
            yield pause
            pause = min(pause * 2, LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """A launch request of one process, and its calls to EC2."""

    engine: Engine
    process_id: str
    request: LaunchRequest
    call_deadline: float
    """No call is made after this monotonic time."""
    jobs: Sequence[int] = ()
    unanswered_calls: list[float] = field(default_factory=list)
    """Monotonic times of the calls that have no answer."""

    def call_once(self) -> LaunchResult:
        """Call EC2 once, and journal the call before it.

        Each call has its own line in the journal, because its unknown outcome counts from that
        call. After minutes of throttles and waits, the last call is as fresh as a first one. An
        error is journaled after the call too. Instances of an earlier call that have ended since
        are left out.

        Raises CloudError, StateError or TooLate. Safe to repeat: the token is the same.
        """
        unanswered_before = len(self.unanswered_calls)
        try:
            result = self.engine.cloud.launch(self.request, self._journal_call)
        except CloudError as error:
            unanswered = len(self.unanswered_calls) > unanswered_before
            if unanswered and not isinstance(error, CloudUnreachable):
                self.unanswered_calls.pop()
                self.engine.journal.record_failed(self.request.attempt, error)
            raise
        live_instances = tuple(item for item in result.instances if not item.state.not_working)
        return replace(result, instances=live_instances)

    def _journal_call(self) -> None:
        if self.engine.clock.monotonic() > self.call_deadline:
            raise TooLate("EC2 was not called: ResumeTimeout was over when the launch's turn came")
        journal = self.engine.journal
        self.unanswered_calls.append(journal.record_call(self.request, self.process_id, self.jobs))


def launch(
    context: LaunchContext, request: LaunchRequest, jobs: Sequence[int]
) -> tuple[LaunchResult, float]:
    """Launch instances, journaled before and after the calls.

    Returns the launch and the earliest moment at which its instances may have been started.

    Raises CloudError, StateError or TooLate. Nothing is then left running, unless it is
    CloudUnreachable. In that case one call got no answer, and no later call told its outcome.
    """
    engine, started = context.engine, context.launch_budget.started
    log = context.log.bind(
        attempt=request.attempt,
        jobs=jobs,
        offering=",".join(item.key for item in request.offerings),
        nodes=hostlist.compress(request.nodes),
    )
    attempt = LaunchAttempt(engine, context.process_id, request, context.call_deadline, jobs)
    start_time = engine.clock.monotonic()
    try:
        result = _with_retries(context, attempt)
    except EngineError as error:
        started.record_failure(request, error, is_unanswered=bool(attempt.unanswered_calls))
        if isinstance(error, CloudError):
            log.warning(LogEvent.LAUNCH_FAILED, **_error_fields(error), code=error.code)
        raise
    started.certain_counts.update(request.nodes[: len(result.instances)])
    for item in result.refusals:
        code, message = item.error.code, item.error.message
        log.warning(LogEvent.OFFERING_REFUSED, key=item.offering.key, code=code, message=message)
    seconds = round(engine.clock.monotonic() - start_time, 3)
    ids = [item.id for item in result.instances]
    log.info(
        LogEvent.INSTANCES_LAUNCHED, count=len(ids), instances=ids[:MAX_LOGGED], seconds=seconds
    )
    try:
        engine.journal.record_launched(request.attempt, assignments(result.instances))
    except StateError:
        terminate(context, ids)
        raise
    return result, attempt.unanswered_calls[0]


def _with_retries(context: LaunchContext, attempt: LaunchAttempt) -> LaunchResult:
    """Repeat the same attempt, with the same token, while that helps.

    Not `retry`: a throttle is repeated until the deadline, silence a few times.
    """
    pauses, unanswered_count, started_count = context.pauses(), 0, 0
    while True:
        try:
            return attempt.call_once()
        except CloudError as error:
            # The same in each try.
            started_count = error.instances_started = max(error.instances_started, started_count)
            no_answer = isinstance(error, CloudUnreachable)
            unanswered_count += no_answer or isinstance(error, NoCredentials)
            retry = error.retryable and unanswered_count < UNANSWERED_TRIES
            if retry and not context.out_of_time:
                next(pauses)
                continue
            if attempt.unanswered_calls and not (error.resolves_launch or no_answer):
                text = f"no answer, then {error.code}: {error.message}"
                raise error_codes.error("Unreachable", text, started=started_count) from error
            raise


def retag_nodes(
    context: LaunchContext,
    node_by_instance: Mapping[str, NodeName],
    instances: Mapping[str, Instance],
    may_retag: Callable[[str], bool],
) -> bool:
    """Tag instances with the names of other nodes.

    EC2 comes first, because instances read their name from its tags.

    Returns False where `may_retag` forbade it; some may have been retagged then. Raises CloudError
    or StateError.
    """
    ids = list(node_by_instance)[:MAX_LOGGED]
    if not context.engine.cloud.retag_nodes(node_by_instance, may_retag):
        context.log.info(LogEvent.REASSIGNMENT_EXPIRED, instances=ids)
        return False
    nodes = sorted(node_by_instance.values())
    context.log.info(LogEvent.INSTANCES_REASSIGNED, nodes=hostlist.compress(nodes), instances=ids)
    for instance_id, node in node_by_instance.items():
        instance = instances[instance_id]
        assignment = Assignment(node, instance.id, instance.address, instance.type)
        context.engine.journal.record_launched(instance.attempt, [assignment])
    return True


def terminate(context: LaunchContext, ids: Iterable[str]) -> frozenset[str]:
    """Terminate instances of this process; return those that still live.

    Those are left to reconcile.
    """
    engine, log, remaining = context.engine, context.log, list(ids)
    if not remaining:
        return frozenset()
    try:
        engine.journal.mark_terminating(remaining, EndCause.RESUME_FAILED)
    except StateError as error:
        log.failure(LogEvent.JOURNAL_WRITE_FAILED, message=error.message)
    terminated: frozenset[str] = frozenset()
    refusal: CloudError | None = None
    # Not `retry`: each round keeps what it terminated, and asks for the rest.
    for try_number in range(TERMINATE_TRIES):
        if try_number:
            engine.clock.sleep(FIRST_PAUSE)
        try:
            terminated |= engine.cloud.terminate(remaining)
        except CloudError as error:
            log.warning(LogEvent.TERMINATION_FAILED, code=error.code, message=error.message)
            if isinstance(error, SomeNotTerminated):
                terminated |= error.terminated
            else:
                refusal = error
        remaining = [item for item in remaining if item not in terminated]
        if not remaining:
            break
    context.launch_budget.record_terminations(terminated, refusal)
    if remaining:
        log.failure(LogEvent.TERMINATION_LEFT, instances=remaining)
    return frozenset(remaining)


def resolve(
    engine: Engine, process_id: str, nodes: frozenset[NodeName], call_deadline: float
) -> None:
    """Repeat unresolved launches of these nodes; journal the answers.

    The process has claimed `nodes`. Repeating a request with the same ClientToken returns the
    instances of the first call, or launches them now. It is repeated only while Slurm waits for
    every node of the launch. Otherwise it could start instances that no node needs, and that are
    too old for the node's next job. A launch's other nodes are claimed meanwhile.

    A launch may stay unresolved: an inconclusive answer does not extend its time. Nothing is
    launched for its nodes until its last unanswered call is too old to matter. Raises StateError
    when the journal can't be used.
    """
    log, journal = engine.log.bind(run=process_id), engine.journal
    requests: list[LaunchRequest] = []

    def choose(view: JournalView) -> Iterable[NodeName]:
        """Return the launches' other nodes.

        A launch is skipped if another process works on one of its nodes.
        """
        for request in view.unresolved_launches:
            claimed = not view.claimed_nodes.isdisjoint(request.nodes)
            if not claimed and not nodes.isdisjoint(request.nodes):
                requests.append(request)
        return [node for request in requests for node in request.nodes if node not in nodes]

    other_nodes = journal.claim(process_id, choose, to_resolve=True)

    def repeat_launch(request: LaunchRequest) -> None:
        try:
            result = LaunchAttempt(engine, process_id, request, call_deadline).call_once()
        except (CloudError, TooLate) as error:
            log.warning(
                LogEvent.LAUNCH_NOT_RESOLVED, attempt=request.attempt, **_error_fields(error)
            )
            return
        journal.record_launched(request.attempt, assignments(result.instances))
        log.info(LogEvent.LAUNCH_RESOLVED, attempt=request.attempt, instances=len(result.instances))

    engine.workers.map(repeat_launch, _still_awaited(engine, requests))
    if other_nodes:
        journal.release(process_id, other_nodes)


def _still_awaited(engine: Engine, requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    """Keep the requests that Slurm waits for with all their nodes.

    Empty when Slurm can't be asked.
    """
    nodes = [node for request in requests for node in request.nodes]
    try:
        waiting_nodes = awaited_nodes(engine.slurm, nodes) if nodes else frozenset()
    except SlurmError as error:
        engine.log.warning(LogEvent.NODE_QUERY_FAILED, message=error.message)
        return []
    return [request for request in requests if waiting_nodes.issuperset(request.nodes)]


def _error_fields(error: EngineError) -> dict[str, str]:
    return {"slug": error.reason_code, "message": error.message}
