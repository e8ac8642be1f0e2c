"""The launch budget: a limit on the instances launched for a job that does not begin.

Instances that are terminated before their job begins cost money and do no work, and the job comes
back for the next ones. So launches are counted by job, until all its nodes are up. The verdicts:

- `launch-loop`: the job got several times the instances that it needs. It is held.
- `rate-too-low`: the account's launch rate is too low for the job's size and time. It is held.
- `not-ended`: EC2 terminates no instance at present. Then nothing is launched at all, since the
  old instances would run beside the new ones.

Losing the record gives every job a new budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName, Late, NotEnded, Throttled
from slurmplugins.model.hostlist import compress, expand
from slurmplugins.model.launch import IN_DOUBT, Failure
from slurmplugins.state import unavailable_offerings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import JobLaunch
    from slurmplugins.model.node import Node


NO_HET_JOBS: Final[Mapping[int, int]] = MappingProxyType({})

LOOP: Final = "launch-loop"
"""Reason code: the job used up its budget."""
RATE: Final = "rate-too-low"
"""Reason code: the account's launch rate is too low for the job."""

MULTIPLE: Final = 3
"""Instances that may be launched per requested node, while the job has not begun."""

LEAST: Final = 6
"""The budget of the smallest jobs: more launches than protected mode needs to shut a pool.

Protected mode judges instances that never become nodes better.
"""

REFUSED_ENDS: Final = 3
"""Programs in a row that could terminate no instance. One success resets the count."""

SHUT_SECONDS: Final = 600.0
"""Seconds without launches after the last refused termination.

Reconcile tries again every 15 s. So they pass only if nothing is left to be terminated, or if
reconcile does not run.
"""

REMEMBERED: Final = 24 * 3600.0
"""Seconds after a job's last launch until the job is forgotten.

It was cancelled then, or waits for something else.
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate at which EC2 launches instances, and the time for one job."""

    burst: float
    """Instances at once."""
    per_second: float
    """Instances per second after that."""
    seconds: float
    """The time for one job: half of ResumeTimeout."""
    told: bool
    """cluster.yaml states the rate. Otherwise it is EC2's published one; the account may have more.
    """

    @property
    def most(self) -> float:
        """Return the most instances that one job can get in time."""
        return self.burst + self.per_second * self.seconds

    @property
    def loop_seconds(self) -> float:
        """Return the longest time between two launches of one launch loop.

        It is twice ResumeTimeout plus the longest time that an offering is unavailable. A job that
        comes back later has run or waited in the meantime.
        """
        return 4 * self.seconds + unavailable_offerings.LONGEST


@dataclass(frozen=True, slots=True)
class Doubt:
    """A launch for a job without an answer."""

    attempt: str
    count: int
    """Instances that it may have started for the job."""
    at: float
    """The time, by the persistent clock."""


@dataclass(frozen=True, slots=True)
class Tries:
    """The launches for one job that has not begun."""

    asked: int
    """The most nodes that it needed at once."""
    started: int = 0
    """Instances launched for it."""
    since: float = 0.0
    """The time of the first launch, by the persistent clock."""
    at: float = 0.0
    """The time of the last launch, by the persistent clock."""
    nodes: str = ""
    """Hostlist of the nodes that it waits for. When all of them are up, the job has begun."""
    slug: str = ""
    """The reason code of the verdict on it, empty without one."""
    message: str = ""
    """The text of the verdict."""
    held: bool = False
    """Slurm holds the job for the verdict. When it comes back, a person has released it."""
    doubts: tuple[Doubt, ...] = ()
    """Launches with an unknown outcome. They make the job wait, and do not hold it."""

    @property
    def budget(self) -> int:
        """Return the number of instances that may be launched for the job."""
        return max(LEAST, MULTIPLE * self.asked)

    @property
    def doubtful(self) -> int:
        """Return the number of instances that unanswered launches may have started."""
        return sum(doubt.count for doubt in self.doubts)


@dataclass(frozen=True, slots=True)
class RefusedEnds:
    """Programs in a row that could terminate no instance."""

    count: int = 0
    code: str = ""
    """EC2's last error code."""
    since: float = 0.0
    """The time of the first refusal, by the persistent clock."""
    at: float = 0.0
    """The time of the last refusal, by the persistent clock."""

    def shut(self, now: float) -> bool:
        """Return whether nothing may be launched."""
        return self.count >= REFUSED_ENDS and abs(now - self.at) < SHUT_SECONDS


@dataclass(frozen=True, slots=True)
class Record:
    """The launch budget's record."""

    jobs: Mapping[int, Tries] = field(default_factory=dict)
    """Jobs that had launches and have not begun, by number."""
    ends: RefusedEnds = field(default_factory=RefusedEnds)
    """Recent refused terminations."""


@dataclass(frozen=True, slots=True)
class Screened:
    """The result of screening launches."""

    let: tuple[JobLaunch, ...]
    """Launches that may go on."""
    refused: tuple[Failure, ...]
    """Launches that may not, with the reason."""
    record: Record
    """The record afterwards."""


def planned(job: JobLaunch) -> tuple[NodeName, ...]:
    """Return the nodes for which the launch starts instances."""
    return tuple(node for ask in job.asks for node in ask.nodes)


def screen(
    record: Record,
    launches: Sequence[JobLaunch],
    now: float,
    rate: Rate,
    governed: Collection[str] = (),
    *,
    whole: Mapping[int, int] = NO_HET_JOBS,
) -> Screened:
    """Decide which launches may go on, and count these.

    Each launch is counted in full until `settle` records its result, since its run may be killed.

    `governed` are pools in protected mode, which limits launches by itself. A launch in such pools
    only is not counted. A job with other pools too is counted. Each time that protected mode lets
    it try, it may start instances in one pool and be refused in the other.

    `whole` maps each component to its het job. slurmctld starts the het job as a whole. Therefore
    it is judged and counted as one job, under its own number.
    """
    if text := why_shut(record, now):
        code = record.ends.code
        refused = (_failure(job, NotEnded.slug, text, code=code) for job in launches)
        return Screened((), tuple(refused), record)
    jobs = dict(_recent(record.jobs, now))
    bars: dict[int, tuple[str, str, bool]] = {}
    for request, parts in _by_request(launches, whole).items():
        if all(ask.pool.name in governed for job in parts for ask in job.asks):
            continue
        tries = _judged(jobs.get(request), parts, now, rate)
        if tries.started + tries.doubtful > tries.budget and not tries.slug:
            bars[request] = IN_DOUBT, _doubted_text(tries.doubtful), False
            continue
        if tries.slug:
            bars[request] = tries.slug, tries.message, True
        jobs[request] = tries
    let: list[JobLaunch] = []
    barred: list[Failure] = []
    for job in launches:
        number = None if job.job is None else whole.get(job.job, job.job)
        if number in bars:
            slug, text, hold = bars[number]
            barred.append(_failure(job, slug, text, hold=hold))
        else:
            let.append(job)
    return Screened(tuple(let), tuple(barred), replace(record, jobs=jobs))


def _by_request(
    launches: Sequence[JobLaunch], whole: Mapping[int, int]
) -> Mapping[int, list[JobLaunch]]:
    found: dict[int, list[JobLaunch]] = {}
    for job in launches:
        if job.job is not None:
            found.setdefault(whole.get(job.job, job.job), []).append(job)
    return found


def why_shut(record: Record, now: float) -> str:
    """Return the reason why nothing is launched; empty while launches go on."""
    if not record.ends.shut(now):
        return ""
    return _shut_text(now - record.ends.since, record.ends.code)


def settle(
    record: Record, charged: Mapping[int, int], started: Mapping[int, int], failed: Collection[int]
) -> Record:
    """Return the record after the results of launches are known.

    It replaces the instances `charged` to each job in full by those that were `started`. A job in
    `failed` does not wait for its nodes any more.
    """
    jobs = dict(record.jobs)
    for job in charged:
        if (tries := jobs.get(job)) is None:
            continue
        count = max(0, tries.started - charged[job] + started.get(job, 0))
        jobs[job] = replace(tries, started=count, nodes="" if job in failed else tries.nodes)
        if job in failed and not (count or tries.slug or tries.doubts):
            del jobs[job]  # EC2 gave it no instance: its requests are not limited
    return replace(record, jobs=jobs)


def doubted(record: Record, attempts: Mapping[int, Mapping[str, int]], now: float) -> Record:
    """Return the record with these unanswered launches added.

    `attempts` holds for each job, by attempt, the instances that may have started.
    """
    jobs = dict(record.jobs)
    for job in attempts.keys() & jobs.keys():
        more = tuple(Doubt(attempt, count, now) for attempt, count in attempts[job].items())
        jobs[job] = replace(jobs[job], doubts=(*jobs[job].doubts, *more))
    return replace(record, jobs=jobs)


def resolved(record: Record, attempts: Collection[str], settled: float) -> Record:
    """Return the record after EC2 listed instances of these attempts.

    An unanswered launch from before `settled` without an instance there launched none.
    """
    jobs = dict(record.jobs)
    for job, tries in record.jobs.items():
        there = sum(doubt.count for doubt in tries.doubts if doubt.attempt in attempts)
        left = tuple(
            doubt for doubt in tries.doubts if doubt.attempt not in attempts and doubt.at > settled
        )
        if left != tries.doubts:
            jobs[job] = replace(tries, started=tries.started + there, doubts=left)
            if not (jobs[job].started or left or tries.slug):
                del jobs[job]
    return replace(record, jobs=jobs)


def slow(failure: Failure, asked: int, started: int, rate: Rate) -> Failure:
    """Return a job's failure, as `rate-too-low` if EC2 was too slow.

    EC2 began to serve the job then, but did not finish in time. The job is to be held.
    """
    if failure.slug not in {Throttled.slug, Late.slug} or not started or asked <= rate.most:
        return failure
    text = _too_slow_text(asked, started, rate)
    return replace(failure, slug=RATE, message=text, hold=True)


def barred(
    record: Record, failures: Sequence[Failure], whole: Mapping[int, int] = NO_HET_JOBS
) -> Record:
    """Return the record with the verdicts of `slow` added.

    These jobs are not launched again unchanged.
    """
    jobs = dict(record.jobs)
    for item in failures:
        request = None if item.job is None else whole.get(item.job, item.job)
        if item.slug == RATE and item.hold and request is not None and request in jobs:
            jobs[request] = replace(jobs[request], slug=RATE, message=item.message)
    return replace(record, jobs=jobs)


def held(record: Record, jobs: Collection[int]) -> Record:
    """Return the record after Slurm held these jobs.

    The next request for one of them means that a person released it.
    """
    known = record.jobs.items()
    return replace(
        record,
        jobs={job: replace(tries, held=True) if job in jobs else tries for job, tries in known},
    )


def begun(record: Record, nodes: Mapping[str, Node], now: float) -> Record:
    """Return the record without jobs whose nodes are all up.

    The launches for such a job have succeeded. A later launch, such as after an interruption, gets
    a new budget.
    """
    up = {name for name, node in nodes.items() if node.up and not node.invalid}
    jobs = {
        job: tries
        for job, tries in _recent(record.jobs, now).items()
        if not (tries.nodes and up.issuperset(_expanded(tries.nodes)))
    }
    return replace(record, jobs=jobs)


def heard(record: Record, now: float, code: str) -> Record:
    """Return the record after a program tried to terminate instances.

    `code` is EC2's error code if it could terminate none, else empty.
    """
    if not code:
        return replace(record, ends=RefusedEnds())
    before = record.ends if abs(now - record.ends.at) < SHUT_SECONDS else RefusedEnds()
    since = before.since if before.count else now
    return replace(record, ends=RefusedEnds(before.count + 1, code, since, now))


def _judged(tries: Tries | None, parts: Sequence[JobLaunch], now: float, rate: Rate) -> Tries:
    """Return a job's launches, plus this launch or a verdict against it.

    `parts` are the launches of the job, or of a het job's components.
    """
    if tries is None or tries.held or (rate.told and tries.slug == RATE):
        tries = Tries(asked=0, since=now)
    if not tries.slug and abs(now - tries.at) > rate.loop_seconds:
        tries = Tries(asked=0, since=now)
    if tries.slug:
        return tries
    asks = [ask for job in parts for ask in job.asks]
    wanted = sum(len(ask.nodes) for ask in asks)
    tries = replace(tries, asked=max(tries.asked, wanted))
    paced = sum(len(ask.nodes) for ask in asks if all(len(rung) == 1 for rung in ask.ladder))
    if rate.told and paced > rate.most:
        return replace(tries, slug=RATE, message=_too_large_text(paced, rate))
    if tries.started + wanted > tries.budget:
        text = _loop_text(tries.started, tries.asked, now - tries.since)
        return replace(tries, slug=LOOP, message=text)
    nodes = compress([node for job in parts for node in job.nodes])
    return replace(tries, started=tries.started + wanted, at=now, nodes=nodes)


def _failure(
    job: JobLaunch, slug: str, text: str, *, code: str = "", hold: bool = False
) -> Failure:
    return Failure(job.job, job.nodes, slug, code, text, hold)


def _recent(jobs: Mapping[int, Tries], now: float) -> Mapping[int, Tries]:
    return {job: one for job, one in jobs.items() if abs(now - (one.at or one.since)) < REMEMBERED}


def _expanded(hostlist: str) -> Collection[str]:
    try:
        return expand(hostlist)
    except BadName:  # a damaged file: no node has this name
        return (hostlist,)


def _shut_text(seconds: float, code: str) -> str:
    """Explain why nothing is launched at all."""
    return (
        f"EC2 has ended nothing for {_minutes(seconds)} ({code}): nothing is started until it does"
    )


def _loop_text(started: int, asked: int, seconds: float) -> str:
    """Explain why a job that does not begin is held."""
    return (
        f"{started} instances were started for its {asked} nodes within {_minutes(seconds)},"
        " and it has not begun"
    )


def _doubted_text(count: int) -> str:
    """Explain why a job waits for the outcome of its launches."""
    return (
        f"{count} instances may have been started for it by launches that got no answer;"
        " that is settled within minutes"
    )


def _too_large_text(asked: int, rate: Rate) -> str:
    """Explain why a job above the configured rate is held."""
    return (
        f"{asked} nodes are more than the {rate.most:.0f} instances that aws.instance_rate"
        f" (burst {rate.burst:g}, per_second {rate.per_second:g}) starts within"
        f" {rate.seconds:.0f} s, half of slurm.resume_timeout. {_mend(rate)}"
    )


def _too_slow_text(asked: int, started: int, rate: Rate) -> str:
    """Explain why a job that EC2 served too slowly is held."""
    return (
        f"EC2 started {started} of {asked} instances in {rate.seconds:.0f} s and took no more"
        f" requests; they were ended. {_mend(rate)}"
    )


def _mend(rate: Rate) -> str:
    known = (
        ""
        if rate.told
        else (
            f" The published rate ({rate.burst:g} at once, {rate.per_second:g} a second) is enough"
            f" for {rate.most:.0f}."
        )
    )
    return (
        "Have AWS raise the account's rate and set aws.instance_rate to it, or raise"
        f" slurm.resume_timeout, or make the job smaller.{known}"
    )


def _minutes(seconds: float) -> str:
    return f"{max(1.0, seconds / 60):.0f} min"
