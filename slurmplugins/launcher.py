"""Starts the machines of one job: offerings in order, all machines or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins import names, offerings, tags
from slurmplugins.cloud.spec import MAX_LAUNCH
from slurmplugins.errors import (
    Capacity,
    CloudError,
    CloudUnreachable,
    Denied,
    InvalidRequest,
    NotFound,
    PriceTooLow,
    Quota,
    StateError,
    Throttled,
)
from slurmplugins.model import Assignment, EndCause, Failure, LaunchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.journal import Journal
    from slurmplugins.log import Log
    from slurmplugins.model import Instance, JobLaunch, Offering, PoolAsk
    from slurmplugins.names import NodeName
    from slurmplugins.offerings import OfferingMemory

TRIES: Final = 5
"""Repeats of one call that was throttled or not answered, over about 15 s in all."""

FIRST_PAUSE: Final = 1.0

END_TRIES: Final = 4
"""A machine launched a second ago may not be listed, and only what is listed is ended."""

_GRAVITY: Final = (Denied, InvalidRequest, NotFound, Quota, CloudUnreachable, Throttled)
"""When offerings fail for different reasons, the one a person must act on is named first."""


class Launcher:
    """For one run. `attempt` makes a new attempt id; `jitter` is in [0, 1)."""

    def __init__(
        self,
        *,
        cluster: str,
        cloud: Cloud,
        journal: Journal,
        memory: OfferingMemory,
        clock: Clock,
        log: Log,
        attempt: Callable[[], str],
        jitter: Callable[[], float],
        budget: float,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._journal = journal
        self._memory = memory
        self._clock = clock
        self._log = log
        self._attempt = attempt
        self._jitter = jitter
        self._deadline = clock.monotonic() + budget

    def launch(self, job: JobLaunch, run: str) -> tuple[Assignment, ...] | Failure:
        """Machines for every node of the job, or the reason why there are none.

        On failure nothing that was started for the job is kept.
        """
        started: list[Assignment] = []
        for ask in job.asks:
            try:
                started += self._fill(ask, run, job.job)
            except CloudError as error:
                self._end(started)
                return Failure(job.job, job.nodes, error.slug, error.code, error.message)
            except StateError as error:
                self._end(started)
                return Failure(job.job, job.nodes, error.slug, message=error.message)
        return tuple(started)

    def _fill(self, ask: PoolAsk, run: str, job: int | None) -> list[Assignment]:
        errors: list[tuple[Offering, CloudError]] = []
        setbacks = self._memory.setbacks()
        for offering in offerings.in_turn(ask.pool.offerings, setbacks):
            if errors and self._clock.monotonic() > self._deadline:
                break
            try:
                found = self._offering(ask, offering, run, job)
            except CloudError as error:
                errors.append((offering, error))
                self._memory.remember(offering, error)
                if isinstance(error, CloudUnreachable | Denied):
                    break  # in doubt, or the same answer everywhere: another try makes it worse
            else:
                self._memory.forget(offering)
                return found
        raise _sum_up(errors)

    def _offering(
        self, ask: PoolAsk, offering: Offering, run: str, job: int | None
    ) -> list[Assignment]:
        started: list[Assignment] = []
        parts = names.chunks(ask.nodes, count=MAX_LAUNCH, characters=tags.MAX_VALUE)
        for part in parts:
            request = self._request(ask, offering, part)
            try:
                self._journal.intend(request, run, job)
                started += self._call(request, job)
            except (CloudError, StateError):
                self._end(started)
                raise
        return started

    def _request(
        self, ask: PoolAsk, offering: Offering, nodes: tuple[NodeName, ...]
    ) -> LaunchRequest:
        return LaunchRequest(
            attempt=self._attempt(),
            cluster=self._cluster,
            pool=ask.pool.name,
            partition=ask.pool.partition,
            launch_template=ask.pool.launch_template,
            subnet=ask.pool.subnets[offering.zone],
            offering=offering,
            nodes=nodes,
        )

    def _call(self, request: LaunchRequest, job: int | None) -> list[Assignment]:
        log = self._log.bind(
            attempt=request.attempt,
            job=job,
            offering=request.offering.key,
            nodes=names.compress(request.nodes),
        )
        began = self._clock.monotonic()
        try:
            machines = self._patiently(request)
        except CloudError as error:
            log.warning("launch failed", slug=error.slug, code=error.code, message=error.message)
            if not isinstance(error, CloudUnreachable):
                self._journal.failed(request.attempt, error)
            raise
        found = [
            Assignment(node, machine.id, machine.address, machine.type)
            for node, machine in zip(request.nodes, machines, strict=True)
        ]
        seconds = round(self._clock.monotonic() - began, 3)
        log.info("launched", machines=[item.instance_id for item in found], seconds=seconds)
        try:
            self._journal.launched(request.attempt, found)
        except StateError:
            self._end(found)
            raise
        return found

    def _patiently(self, request: LaunchRequest) -> Sequence[Instance]:
        """Repeat the same attempt, with the same token, while repeating can help."""
        pause = FIRST_PAUSE
        for left in range(TRIES - 1, -1, -1):
            try:
                return self._cloud.launch(request)
            except CloudError as error:
                if not error.retryable or not left or self._clock.monotonic() > self._deadline:
                    raise
                self._clock.sleep(pause * (0.5 + self._jitter()))
                pause *= 2
        raise AssertionError("unreachable")

    def _end(self, started: Sequence[Assignment]) -> None:
        """Give back what was started; what this misses is an orphan, and reconcile's."""
        left = [item.instance_id for item in started]
        if not left:
            return
        try:
            self._journal.condemn(left, EndCause.RESUME_FAILED)
        except StateError as error:
            self._log.problem("journal", message=error.message)
        for _ in range(END_TRIES):
            try:
                over = self._cloud.terminate(left)
                left = [item for item in left if item not in over]
            except CloudError as error:
                self._log.warning("terminate failed", code=error.code, message=error.message)
            if not left:
                return
            self._clock.sleep(FIRST_PAUSE)
        self._log.problem("machines left to reconcile", machines=left)


def _sum_up(errors: Sequence[tuple[Offering, CloudError]]) -> CloudError:
    """One error for the job, of the gravest kind, telling what every offering said."""
    if not errors:
        return Capacity("no offering to try", code="NoOffering")
    told = "; ".join(f"{offering.key}: {error.code}: {error.message}" for offering, error in errors)

    def gravity(error: CloudError) -> int:
        if isinstance(error, Capacity | PriceTooLow):
            return len(_GRAVITY) + 1
        kinds = (index for index, kind in enumerate(_GRAVITY) if isinstance(error, kind))
        return next(kinds, len(_GRAVITY))

    worst = min((error for _, error in errors), key=gravity)
    return type(worst)(told, code=worst.code)
