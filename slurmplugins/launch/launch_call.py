"""Make one launch safely: journal it before each call, repeat it with the same token, journal the
end.

Safe between threads, as its parts are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import error_codes
from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    EngineError,
    NoCredentials,
    SomeNotTerminated,
    StateError,
    TooLate,
)
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment, EndCause, assignments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import LaunchRequest, LaunchResult
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import LaunchBudget, StartedInstances
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


UNANSWERED_TRIES: Final = 5
"""Tries of one call that got no answer, or lacked credentials, over about 15 s in all. A throttled
call is repeated for as long as the run has time. Its outcome is certain, and tokens come back."""

MAX_LOGGED: Final = 20
"""Instances that a line of the log names. A call's own line says how many there were."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 20.0

TERMINATE_TRIES: Final = 4
"""Tries of a termination. An instance launched a second ago may not be listed yet, and only listed
instances can be terminated."""


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """A launch request of one run, and its calls to EC2."""

    cloud: Cloud
    journal: Journal
    clock: Clock
    process_id: str
    request: LaunchRequest
    call_deadline: float
    """No call is made after this monotonic time."""
    jobs: Sequence[int] = ()
    unanswered_calls: list[float] = field(default_factory=list)
    """Monotonic times of the calls that have no answer."""

    def call_once(self) -> LaunchResult:
        """Call EC2 once, and journal the call before it.

        Each call has its own line in the journal, because doubt about a call counts from that call.
        After minutes of throttles and waits, the last call is as fresh a doubt as a first one. An
        error is journaled after the call too. Instances of an earlier call that have ended since
        are left out.

        Raises CloudError, StateError or Late. Safe to repeat: the token is the same.
        """
        unanswered_before = len(self.unanswered_calls)
        try:
            result = self.cloud.launch(self.request, self._journal_call)
        except CloudError as error:
            if len(self.unanswered_calls) > unanswered_before and not isinstance(
                error, CloudUnreachable
            ):
                self.unanswered_calls.pop()
                self.journal.record_failed(self.request.attempt, error)
            raise
        live_instances = tuple(item for item in result.instances if not item.state.not_working)
        return replace(result, instances=live_instances)

    def _journal_call(self) -> None:
        if self.clock.monotonic() > self.call_deadline:
            raise TooLate("its turn at EC2 came too late")
        self.unanswered_calls.append(
            self.journal.record_call(self.request, self.process_id, self.jobs)
        )


class LaunchCalls:
    """Launches, renames and terminates instances for one run."""

    def __init__(
        self,
        *,
        process_id: str,
        cloud: Cloud,
        journal: Journal,
        clock: Clock,
        log: Log,
        # Returns numbers in [0, 1).
        jitter: Callable[[], float],
        # The monotonic time at which the run is to end.
        deadline: float,
        # The monotonic time after which nothing is launched.
        call_deadline: float,
        launch_budget: LaunchBudget,
        started_instances: StartedInstances,
    ) -> None:
        self._process_id = process_id
        self._cloud = cloud
        self._journal = journal
        self._clock = clock
        self._log = log
        self._jitter = jitter
        self._deadline = deadline
        self._call_deadline = call_deadline
        self._launch_budget = launch_budget
        self._started_instances = started_instances

    @property
    def out_of_time(self) -> bool:
        """Return whether the time for finding capacity is spent."""
        return self._clock.monotonic() >= self._deadline

    def launch(self, request: LaunchRequest, jobs: Sequence[int]) -> tuple[LaunchResult, float]:
        """Launch instances, journaled before and after the calls.

        Returns the launch and the earliest moment at which its instances may have been started.

        Raises CloudError, StateError or Late. Nothing is then left running, unless it is
        CloudUnreachable. In that case one call got no answer, and no later call told its outcome.
        """
        log = self._log.bind(
            attempt=request.attempt,
            jobs=jobs,
            offering=",".join(item.key for item in request.offerings),
            nodes=hostlist.compress(request.nodes),
        )
        launch_attempt = LaunchAttempt(
            self._cloud,
            self._journal,
            self._clock,
            self._process_id,
            request,
            self._call_deadline,
            jobs,
        )
        start_time = self._clock.monotonic()
        try:
            result = self._with_retries(launch_attempt)
        except EngineError as error:
            self._started_instances.record_failure(
                request, error, is_unanswered=bool(launch_attempt.unanswered_calls)
            )
            if isinstance(error, CloudError):
                error_fields = {
                    "slug": error.reason_code,
                    "code": error.code,
                    "message": error.message,
                }
                log.warning("launch failed", **error_fields)
            raise
        self._started_instances.certain_counts.update(request.nodes[: len(result.instances)])
        for item in result.refusals:
            code, message = item.error.code, item.error.message
            log.warning("offering refused", key=item.offering.key, code=code, message=message)
        seconds = round(self._clock.monotonic() - start_time, 3)
        ids = [item.id for item in result.instances]
        log.info("launched", count=len(ids), machines=ids[:MAX_LOGGED], seconds=seconds)
        try:
            self._journal.record_launched(request.attempt, assignments(result.instances))
        except StateError:
            self.terminate([item.id for item in result.instances])
            raise
        return result, launch_attempt.unanswered_calls[0]

    def retag_nodes(
        self,
        node_by_instance: Mapping[str, NodeName],
        instances: Mapping[str, Instance],
        may_retag: Callable[[str], bool],
    ) -> bool:
        """Rename instances, first in EC2: they read its tags.

        Returns False where `may` forbade it; some may have been renamed then. Raises CloudError or
        StateError.
        """
        if not self._cloud.retag_nodes(node_by_instance, may_retag):
            self._log.info("too old to be given", machines=list(node_by_instance)[:MAX_LOGGED])
            return False
        nodes = sorted(node_by_instance.values())
        self._log.info(
            "given", nodes=hostlist.compress(nodes), machines=list(node_by_instance)[:MAX_LOGGED]
        )
        for instance_id, node in node_by_instance.items():
            instance = instances[instance_id]
            assignment = Assignment(node, instance.id, instance.address, instance.type)
            self._journal.record_launched(instance.attempt, [assignment])
        return True

    def terminate(self, ids: Iterable[str]) -> frozenset[str]:
        """Terminate instances of this run; return those that still live.

        Those are left to reconcile.
        """
        remaining = list(ids)
        if not remaining:
            return frozenset()
        try:
            self._journal.mark_terminating(remaining, EndCause.RESUME_FAILED)
        except StateError as error:
            self._log.failure("journal", message=error.message)
        terminated: frozenset[str] = frozenset()
        refusal: CloudError | None = None
        for try_number in range(TERMINATE_TRIES):
            if try_number:
                self._clock.sleep(FIRST_PAUSE)
            try:
                terminated |= self._cloud.terminate(remaining)
            except CloudError as error:
                self._log.warning("terminate failed", code=error.code, message=error.message)
                if isinstance(error, SomeNotTerminated):
                    terminated |= error.terminated
                else:
                    refusal = error
            remaining = [item for item in remaining if item not in terminated]
            if not remaining:
                break
        self._launch_budget.record_terminations(terminated, refusal)
        if remaining:
            self._log.failure("machines left to reconcile", machines=remaining)
        return frozenset(remaining)

    def pauses(self) -> Iterator[float]:
        """Sleep longer each time, never past the run's end.

        Yields each pause in seconds, before jitter.
        """
        pause = FIRST_PAUSE
        while True:
            remaining = self._deadline - self._clock.monotonic()
            self._clock.sleep(max(0.0, min(pause * (0.5 + self._jitter()), remaining)))
            yield pause
            pause = min(pause * 2, LONGEST_PAUSE)

    def _with_retries(self, launch_attempt: LaunchAttempt) -> LaunchResult:
        """Repeat the same attempt, with the same token, while that helps."""
        pauses, unanswered_count, started_count = self.pauses(), 0, 0
        while True:
            try:
                return launch_attempt.call_once()
            except CloudError as error:
                started_count = error.instances_started = max(
                    error.instances_started, started_count
                )  # the same in each try
                unanswered_count += isinstance(error, CloudUnreachable | NoCredentials)
                if not error.retryable or unanswered_count >= UNANSWERED_TRIES or self.out_of_time:
                    if launch_attempt.unanswered_calls and not (
                        error.resolves_launch or isinstance(error, CloudUnreachable)
                    ):
                        text = f"no answer, then {error.code}: {error.message}"
                        raise error_codes.error(
                            "Unreachable", text, started=started_count
                        ) from error
                    raise
                next(pauses)
