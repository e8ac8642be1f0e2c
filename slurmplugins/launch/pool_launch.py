"""Launch for jobs that want the same: nodes of one pool, in one fallback order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import error_codes
from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    Denied,
    EngineError,
    Late,
    Quota,
    StateError,
    Throttled,
)
from slurmplugins.launch import batching
from slurmplugins.model.instance import assignments
from slurmplugins.model.launch import LaunchRequest, Refusal
from slurmplugins.state import unavailable_offerings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.launch.batching import Batch, Settlement, Want
    from slurmplugins.launch.ec2_quotas import Quotas
    from slurmplugins.launch.launch_call import Calls
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment, Instance
    from slurmplugins.model.offering import Offering, Pool, Rung
    from slurmplugins.state.unavailable_offerings import OfferingMemory, Setback
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.workers import Crew

YOUNG_SECONDS: Final = 5.0
"""Seconds after the request in which an instance can't have read its name yet. It may get another
name if the call for that leaves before then."""

SHORT: Final = "InsufficientInstanceCapacity"
"""EC2's code for a shortage, used for a partial answer that has no code."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one call."""

    batch: Batch
    machines: tuple[Instance, ...] = ()
    began: float = 0.0
    """The earliest monotonic time at which the instances may have been started."""
    refusals: tuple[Refusal, ...] = ()
    error: EngineError | None = None

    @property
    def last(self) -> bool:
        """Return whether another try would make it worse.

        The outcome is unknown, or the same everywhere.
        """
        return isinstance(self.error, CloudUnreachable | Denied | Late | StateError | Throttled)

    @property
    def throttled(self) -> bool:
        """Return whether EC2 answered, but throttled some of the offerings."""
        return any(_throttle(item) for item in self.refusals)


@dataclass(slots=True)
class Tally:
    """A node request's refusals and errors up to now."""

    want: Want
    refusals: list[Refusal] = field(default_factory=list)
    error: EngineError | None = None
    ended: list[NodeName] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a node request: it is complete, or it is not and won't be."""

    want: Want
    machines: tuple[Assignment, ...] = ()
    """The instances of a complete request; empty for a failed one."""
    refusals: tuple[Refusal, ...] = ()
    """Why it failed, offering by offering. `error` has the rest of the reason."""
    error: EngineError | None = None
    ended: tuple[NodeName, ...] = ()
    """Nodes of the request that had an instance for a while."""


class Lane:
    """Tries the pool's offerings in order until every job is complete or has failed.

    `decided` is called exactly once per job, as soon as its result is known.

    `named` is called, from any thread, with instances whose name is final. Their job is not decided
    then: it may still fail.
    """

    def __init__(
        self,
        *,
        cluster: str,
        pool: Pool,
        ladder: Sequence[Rung],
        wants: Sequence[Want],
        calls: Calls,
        crew: Crew,
        memory: OfferingMemory,
        clock: Clock,
        attempt: Callable[[], str],
        quotas: Quotas,
        burst: float,
        decided: Callable[[Sequence[Decision]], None],
        named: Callable[[Sequence[Assignment]], None],
    ) -> None:
        self._cluster = cluster
        self._pool = pool
        self._ladder = ladder
        self._open = {want: Tally(want) for want in wants}
        self._calls = calls
        self._crew = crew
        self._memory = memory
        self._clock = clock
        self._attempt = attempt
        self._quotas = quotas
        self._burst = burst
        self._decided = decided
        self._named = named
        self._known = memory.setbacks()

    def work(self) -> None:
        """Try group after group of offerings until all jobs are decided."""
        listed = [item for rung in self._ladder for item in rung]
        turn = set(unavailable_offerings.in_turn(listed, self._known))
        tried = False
        for rung in self._ladder:
            usable = tuple(item for item in rung if item in turn)
            if not usable:
                continue
            if not self._open or (tried and self._calls.late):
                break
            tried = True
            self._climb(usable)
        self._give_up(list(self._open))

    def _climb(self, rung: Rung) -> None:
        """Ask one group for all open jobs, then retry throttled ones."""
        wants, pauses = list(self._open), self._calls.pauses()
        while wants:
            calls = batching.batches(wants, fleet=len(rung) > 1, burst=self._burst)
            several = self._crew.map(lambda batch: self._asked(batch, rung), calls)
            answers = [answer for each in several for answer in each]
            self._settle(answers)
            again = (want for item in answers if item.throttled for want in item.batch.wants)
            wants = [want for want in dict.fromkeys(again) if want in self._open]
            if not wants or self._calls.late:
                return
            for want in wants:
                tally = self._open[want]
                tally.refusals = [item for item in tally.refusals if not _throttle(item)]
            next(pauses)

    def _asked(self, batch: Batch, rung: Rung) -> list[Answer]:
        """Ask for a batch, and by halves where a quota refuses it.

        The quota may do for one of its jobs.
        """
        answer = self._patiently(batch, rung)
        if len(batch.wants) == 1 or not _over_quota(answer):
            return [answer]
        return [item for half in batching.halves(batch) for item in self._asked(half, rung)]

    def _patiently(self, batch: Batch, rung: Rung) -> Answer:
        """Repeat a call while its only result is a throttle.

        The throttle is inside EC2's answer. EC2 answers a fleet's token as it did before, so each
        repeat is an attempt of its own. Other parts of a large job keep their instances meanwhile.
        """
        pauses = self._calls.pauses()
        while True:
            answer = self._ask(batch, rung)
            only_throttled = answer.throttled and not (answer.machines or answer.error)
            if not only_throttled or self._calls.late:
                return answer
            next(pauses)

    def _ask(self, batch: Batch, rung: Rung) -> Answer:
        """Make one call with the offerings that are still available.

        Offerings that refused any job since this launch began are left out.
        """
        now = self._memory.setbacks()
        # Only a new refusal counts: one that is over, or forgotten since, does not.
        fresh = tuple(
            item for item in rung if now.get(item.key) in (None, self._known.get(item.key))
        )
        passed = tuple(_passed(item, now[item.key]) for item in rung if item not in fresh)
        if not fresh:
            return Answer(batch, refusals=passed)
        request = self._request(batch, fresh)
        jobs = [want.job for want in batch.wants if want.job is not None]
        try:
            launched, began = self._calls.launch(request, jobs)
        except CloudError as error:
            refusals = tuple(Refusal(item, error) for item in fresh)
            self._learn(refusals, batch)
            return Answer(batch, refusals=(*passed, *refusals), error=error)
        except (Late, StateError) as error:
            return Answer(batch, refusals=passed, error=error)
        self._quotas.add(launched.machines)
        refusals = launched.refusals
        if len(launched.machines) < len(batch.nodes) and not refusals:
            text = f"{len(launched.machines)} of {len(batch.nodes)} machines"
            refusals = tuple(Refusal(item, error_codes.error(SHORT, text)) for item in fresh)
        self._learn(refusals, batch)
        if not refusals:
            for item in fresh:
                self._memory.forget(item)
        self._named(assignments(batching.certain(batch, launched.machines)))
        return Answer(batch, launched.machines, began, (*passed, *refusals))

    def _request(self, batch: Batch, rung: Rung) -> LaunchRequest:
        zone = rung[0].zone
        own = self._pool.zone_templates.get(zone)
        return LaunchRequest(
            attempt=self._attempt(),
            cluster=self._cluster,
            pool=self._pool.name,
            partition=self._pool.partition,
            launch_template=own or self._pool.launch_template,
            subnet="" if own else self._pool.subnets[zone],
            offering=rung[0],
            nodes=batch.nodes,
            others=rung[1:],
            least=batch.least,
        )

    def _learn(self, refusals: Sequence[Refusal], batch: Batch) -> None:
        """Remember which offerings are unavailable.

        A quota that refuses many jobs says nothing about one of them, so it is remembered for a job
        alone.
        """
        for item in refusals:
            if isinstance(item.error, Quota) and len(batch.wants) > 1:
                continue
            self._memory.remember(item.offering, item.error)

    def _settle(self, answers: Sequence[Answer]) -> None:
        """Give whole jobs their instances; terminate the surplus.

        Nothing is left running for the other jobs. They give up if their error is final, or if a
        surplus instance could not be terminated. Otherwise they stay open for the next group.
        """
        machines: dict[NodeName, Instance] = {}
        began: dict[str, float] = {}
        named: set[str] = set()
        lost: list[Want] = []
        for answer in answers:
            named |= {item.id for item in batching.certain(answer.batch, answer.machines)}
            machines |= {item.node: item for item in answer.machines if item.node is not None}
            began |= {item.id: answer.began for item in answer.machines}
            for want in answer.batch.wants:
                self._open[want].refusals += answer.refusals
                if answer.last:
                    self._open[want].error = answer.error
                    lost.append(want)

        def young(instance_id: str) -> bool:
            return self._clock.monotonic() - began[instance_id] <= YOUNG_SECONDS

        free = set(filter(young, began)) - named
        settled = batching.settle(list(self._open), machines, free, set(lost))
        filled, spare = self._given(settled, young)
        stuck = self._calls.end(item.id for item in spare)
        over = {item.node for item in spare}
        for want, tally in self._open.items():
            tally.ended += [node for node in want.nodes if node in over]
        nodes = {item.node for item in spare if item.id in stuck}
        # An instance whose renaming failed may have either name by now.
        nodes |= {node for key, node in settled.given.items() if key in stuck}
        done = [Decision(want, tuple(assignments(found))) for want, found in filled.items()]
        for want in filled:
            del self._open[want]
        self._decided(done)
        stopped = {want: None for want in self._open if nodes.intersection(want.nodes)}
        self._give_up([*stopped, *(want for want in lost if want in self._open)])

    def _given(
        self, settled: Settlement, young: Callable[[str], bool]
    ) -> tuple[dict[Want, tuple[Instance, ...]], list[Instance]]:
        """Rename the reassigned instances.

        Returns the complete jobs' instances and the surplus. A job whose renaming failed gets
        nothing.
        """

        def give(want: Want) -> bool:
            by_id = {item.id: item for item in settled.filled[want].values()}
            given = {key: settled.given[key] for key in by_id if key in settled.given}
            try:
                return not given or self._calls.give(given, by_id, young)
            except EngineError as error:
                self._open[want].error = error
                return False

        filled: dict[Want, tuple[Instance, ...]] = {}
        spare = list(settled.spare)
        # All at the same time, since each has only seconds.
        results = self._crew.map(give, settled.filled)
        for (want, found), given in zip(settled.filled.items(), results, strict=True):
            if given:
                filled[want] = tuple(replace(item, node=node) for node, item in found.items())
            else:
                spare += found.values()
        return filled, spare

    def _give_up(self, wants: Sequence[Want]) -> None:
        told = []
        for want in dict.fromkeys(wants):
            tally = self._open.pop(want)
            told.append(Decision(want, (), tuple(tally.refusals), tally.error, tuple(tally.ended)))
        self._decided(told)


def _over_quota(answer: Answer) -> bool:
    told = any(isinstance(item.error, Quota) and not item.passed_on for item in answer.refusals)
    return told and not answer.machines


def _throttle(refusal: Refusal) -> bool:
    return isinstance(refusal.error, Throttled)


def _passed(offering: Offering, setback: Setback) -> Refusal:
    error = error_codes.error(setback.code, "refused to another a moment ago")
    return Refusal(offering, error, passed_on=True)
