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
    Late,
    NoCredentials,
    NotAllEnded,
    StateError,
)
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Assignment, EndCause, assignments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import Launched, LaunchRequest
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import Brake, Starts
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


TRIES: Final = 5
"""Tries of one call that got no answer, or lacked credentials, over about 15 s in all. A throttled
call is repeated for as long as the run has time. Its outcome is certain, and tokens come back."""

SHOWN: Final = 20
"""Instances that a line of the log names. A call's own line says how many there were."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 20.0

END_TRIES: Final = 4
"""Tries of a termination. An instance launched a second ago may not be listed yet, and only listed
instances can be terminated."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch request of one run, and its calls to EC2."""

    cloud: Cloud
    journal: Journal
    clock: Clock
    run: str
    request: LaunchRequest
    latest: float
    """No call is made after this monotonic time."""
    jobs: Sequence[int] = ()
    silent: list[float] = field(default_factory=list)
    """Monotonic times of the calls that have no answer."""

    def ask(self) -> Launched:
        """Call EC2 once, and journal the call before it.

        Each call has its own line in the journal, because doubt about a call counts from that call.
        After minutes of throttles and waits, the last call is as fresh a doubt as a first one. An
        error is journaled after the call too. Instances of an earlier call that have ended since
        are left out.

        Raises CloudError, StateError or Late. Safe to repeat: the token is the same.
        """
        before = len(self.silent)
        try:
            launched = self.cloud.launch(self.request, self._intend)
        except CloudError as error:
            if len(self.silent) > before and not isinstance(error, CloudUnreachable):
                self.silent.pop()
                self.journal.failed(self.request.attempt, error)
            raise
        living = tuple(item for item in launched.machines if not item.state.lost)
        return replace(launched, machines=living)

    def _intend(self) -> None:
        if self.clock.monotonic() > self.latest:
            raise Late("its turn at EC2 came too late")
        self.silent.append(self.journal.intend(self.request, self.run, self.jobs))


class Calls:
    """Launches, renames and terminates instances for one run."""

    def __init__(
        self,
        *,
        run: str,
        cloud: Cloud,
        journal: Journal,
        clock: Clock,
        log: Log,
        # Returns numbers in [0, 1).
        jitter: Callable[[], float],
        # The monotonic time at which the run is to end.
        deadline: float,
        # The monotonic time after which nothing is launched.
        latest: float,
        brake: Brake,
        started: Starts,
    ) -> None:
        self._run = run
        self._cloud = cloud
        self._journal = journal
        self._clock = clock
        self._log = log
        self._jitter = jitter
        self._deadline = deadline
        self._latest = latest
        self._brake = brake
        self._started = started

    @property
    def late(self) -> bool:
        """Return whether the time for finding capacity is spent."""
        return self._clock.monotonic() >= self._deadline

    def launch(self, request: LaunchRequest, jobs: Sequence[int]) -> tuple[Launched, float]:
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
        attempt = Attempt(
            self._cloud, self._journal, self._clock, self._run, request, self._latest, jobs
        )
        began = self._clock.monotonic()
        try:
            launched = self._patiently(attempt)
        except EngineError as error:
            self._started.failed(request, error, silent=bool(attempt.silent))
            if isinstance(error, CloudError):
                told = {"slug": error.slug, "code": error.code, "message": error.message}
                log.warning("launch failed", **told)
            raise
        self._started.sure.update(request.nodes[: len(launched.machines)])
        for item in launched.refusals:
            code, message = item.error.code, item.error.message
            log.warning("offering refused", key=item.offering.key, code=code, message=message)
        seconds = round(self._clock.monotonic() - began, 3)
        ids = [item.id for item in launched.machines]
        log.info("launched", count=len(ids), machines=ids[:SHOWN], seconds=seconds)
        try:
            self._journal.launched(request.attempt, assignments(launched.machines))
        except StateError:
            self.end([item.id for item in launched.machines])
            raise
        return launched, attempt.silent[0]

    def give(
        self,
        given: Mapping[str, NodeName],
        machines: Mapping[str, Instance],
        may: Callable[[str], bool],
    ) -> bool:
        """Rename instances, first in EC2: they read its tags.

        Returns False where `may` forbade it; some may have been renamed then. Raises CloudError or
        StateError.
        """
        if not self._cloud.give(given, may):
            self._log.info("too old to be given", machines=list(given)[:SHOWN])
            return False
        nodes = sorted(given.values())
        self._log.info("given", nodes=hostlist.compress(nodes), machines=list(given)[:SHOWN])
        for instance_id, node in given.items():
            machine = machines[instance_id]
            told = Assignment(node, machine.id, machine.address, machine.type)
            self._journal.launched(machine.attempt, [told])
        return True

    def end(self, ids: Iterable[str]) -> frozenset[str]:
        """Terminate instances of this run; return those that still live.

        Those are left to reconcile.
        """
        left = list(ids)
        if not left:
            return frozenset()
        try:
            self._journal.condemn(left, EndCause.RESUME_FAILED)
        except StateError as error:
            self._log.problem("journal", message=error.message)
        over: frozenset[str] = frozenset()
        refusal: CloudError | None = None
        for again in range(END_TRIES):
            if again:
                self._clock.sleep(FIRST_PAUSE)
            try:
                over |= self._cloud.terminate(left)
            except CloudError as error:
                self._log.warning("terminate failed", code=error.code, message=error.message)
                if isinstance(error, NotAllEnded):
                    over |= error.over
                else:
                    refusal = error
            left = [item for item in left if item not in over]
            if not left:
                break
        self._brake.heard(over, refusal)
        if left:
            self._log.problem("machines left to reconcile", machines=left)
        return frozenset(left)

    def pauses(self) -> Iterator[float]:
        """Sleep longer each time, never past the run's end.

        Yields each pause in seconds, before jitter.
        """
        pause = FIRST_PAUSE
        while True:
            left = self._deadline - self._clock.monotonic()
            self._clock.sleep(max(0.0, min(pause * (0.5 + self._jitter()), left)))
            yield pause
            pause = min(pause * 2, LONGEST_PAUSE)

    def _patiently(self, attempt: Attempt) -> Launched:
        """Repeat the same attempt, with the same token, while that helps."""
        pauses, unanswered, started = self.pauses(), 0, 0
        while True:
            try:
                return attempt.ask()
            except CloudError as error:
                started = error.started = max(error.started, started)  # the same in each try
                unanswered += isinstance(error, CloudUnreachable | NoCredentials)
                if not error.retryable or unanswered >= TRIES or self.late:
                    if attempt.silent and not (
                        error.settles or isinstance(error, CloudUnreachable)
                    ):
                        text = f"no answer, then {error.code}: {error.message}"
                        raise error_codes.error("Unreachable", text, started=started) from error
                    raise
                next(pauses)
