"""The brake: few instances are started for a job that does not begin, whatever EC2 answers.

Launches that end before their job begins cost money and do no work, and the job comes back for the
next. So they are counted by job, until all its nodes are up: `launch-loop` holds a job that had
several times what it asks for. `rate-too-low` holds one that is larger than what the account's rate
starts within the time for it. While EC2 ends nothing (`not-ended`), nothing is started at all: what
can't be ended stays beside what comes next. Losing the record gives every job a new budget.
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
RATE: Final = "rate-too-low"

MULTIPLE: Final = 3
"""Instances started for a job that has not begun, for each node that it asked for."""

LEAST: Final = 6
"""The budget of the smallest jobs: more than protected mode takes to shut a pool, which is the
better judge of instances that never become nodes."""

REFUSED_ENDS: Final = 3
"""Programs in a row that EC2 let end nothing. One end that works forgets them all."""

SHUT_SECONDS: Final = 600.0
"""After the last refused end. Reconcile tries again every 15 s, so it passes only where nothing
is left to be ended, or where reconcile does not run."""

REMEMBERED: Final = 24 * 3600.0
"""After a job's last launch: it has been cancelled, or waits for something else."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What EC2 starts for one job in time: `burst` at once and `per_second` for `seconds`. `told`:
    cluster.yaml says so; else it is the published default, and the account may have more.
    """

    burst: float
    per_second: float
    seconds: float
    told: bool

    @property
    def most(self) -> float:
        return self.burst + self.per_second * self.seconds

    @property
    def loop_seconds(self) -> float:
        """A job that comes back later than this after its last launch has worked or waited: twice
        ResumeTimeout, half of which `seconds` is, and the longest setback.
        """
        return 4 * self.seconds + unavailable_offerings.LONGEST


@dataclass(frozen=True, slots=True)
class Doubt:
    """The instances that a launch without an answer may have started for a job, and its time."""

    attempt: str
    count: int
    at: float


@dataclass(frozen=True, slots=True)
class Tries:
    """What was started for one job that has not begun. `asked`: the most nodes that it wanted at
    once. `nodes`: those it waits for now; when all are up it has begun. `slug` and `message`: the
    verdict on it. `held`: Slurm holds it for that, so a person has released it when it comes back.
    `doubts`: launches of which nobody knows yet; they keep the job waiting and hold nobody.
    """

    asked: int
    started: int = 0
    since: float = 0.0
    at: float = 0.0
    nodes: str = ""
    slug: str = ""
    message: str = ""
    held: bool = False
    doubts: tuple[Doubt, ...] = ()

    @property
    def budget(self) -> int:
        return max(LEAST, MULTIPLE * self.asked)

    @property
    def doubtful(self) -> int:
        return sum(doubt.count for doubt in self.doubts)


@dataclass(frozen=True, slots=True)
class RefusedEnds:
    """Programs in a row that could end nothing, EC2's last word on that, and from when to when."""

    count: int = 0
    code: str = ""
    since: float = 0.0
    at: float = 0.0

    def shut(self, now: float) -> bool:
        return self.count >= REFUSED_ENDS and abs(now - self.at) < SHUT_SECONDS


@dataclass(frozen=True, slots=True)
class Record:
    """Every job that had launches and has not begun, and how ends fare."""

    jobs: Mapping[int, Tries] = field(default_factory=dict)
    ends: RefusedEnds = field(default_factory=RefusedEnds)


@dataclass(frozen=True, slots=True)
class Screened:
    """The launches that may go on, those that may not and why, and the record after that."""

    let: tuple[JobLaunch, ...]
    refused: tuple[Failure, ...]
    record: Record


def planned(job: JobLaunch) -> tuple[NodeName, ...]:
    """The nodes for which the launch starts instances."""
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
    """Which launches may go on. Each is counted in full until `settle` says what came of it: its
    run may be killed. `governed`: pools in protected mode, which bounds launches by itself: what is
    launched in these alone is not counted. A job of another pool as well may have started instances
    in the one and been refused in the other, each time that protected mode lets it try.
    `whole`: the het job of each component. slurmctld starts all of it, so it is judged and counted
    as one, under its own number.
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
    """Why nothing is launched; empty while launches go on."""
    if not record.ends.shut(now):
        return ""
    return _shut_text(now - record.ends.since, record.ends.code)


def settle(
    record: Record, charged: Mapping[int, int], started: Mapping[int, int], failed: Collection[int]
) -> Record:
    """The record once it is known what was `started` for jobs that were `charged` in full. One that
    `failed` waits for none of its nodes any more.
    """
    jobs = dict(record.jobs)
    for job in charged:
        if (tries := jobs.get(job)) is None:
            continue
        count = max(0, tries.started - charged[job] + started.get(job, 0))
        jobs[job] = replace(tries, started=count, nodes="" if job in failed else tries.nodes)
        if job in failed and not (count or tries.slug or tries.doubts):
            del jobs[job]  # EC2 gave it nothing: it may ask as often as it likes
    return replace(record, jobs=jobs)


def doubted(record: Record, attempts: Mapping[int, Mapping[str, int]], now: float) -> Record:
    """The record with these launches in doubt: for each job, by attempt, what may have started."""
    jobs = dict(record.jobs)
    for job in attempts.keys() & jobs.keys():
        more = tuple(Doubt(attempt, count, now) for attempt, count in attempts[job].items())
        jobs[job] = replace(jobs[job], doubts=(*jobs[job].doubts, *more))
    return replace(record, jobs=jobs)


def resolved(record: Record, attempts: Collection[str], settled: float) -> Record:
    """The record once EC2 lists instances of these attempts. A doubt of before `settled` that has
    none there came to nothing.
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
    """The failure of a job that EC2 began to serve, and was too slow for: it is to be held."""
    if failure.slug not in {Throttled.slug, Late.slug} or not started or asked <= rate.most:
        return failure
    text = _too_slow_text(asked, started, rate)
    return replace(failure, slug=RATE, message=text, hold=True)


def barred(
    record: Record, failures: Sequence[Failure], whole: Mapping[int, int] = NO_HET_JOBS
) -> Record:
    """The record with the verdicts of `slow`: not one of these jobs is tried again as it is."""
    jobs = dict(record.jobs)
    for item in failures:
        request = None if item.job is None else whole.get(item.job, item.job)
        if item.slug == RATE and item.hold and request is not None and request in jobs:
            jobs[request] = replace(jobs[request], slug=RATE, message=item.message)
    return replace(record, jobs=jobs)


def held(record: Record, jobs: Collection[int]) -> Record:
    """The record once Slurm holds these jobs: the next ask for one is a person's release."""
    known = record.jobs.items()
    return replace(
        record,
        jobs={job: replace(tries, held=True) if job in jobs else tries for job, tries in known},
    )


def begun(record: Record, nodes: Mapping[str, Node], now: float) -> Record:
    """The record less the jobs all of whose nodes are up: launches for them have done their work.
    What comes later, an interruption say, is a new beginning.
    """
    up = {name for name, node in nodes.items() if node.up and not node.invalid}
    jobs = {
        job: tries
        for job, tries in _recent(record.jobs, now).items()
        if not (tries.nodes and up.issuperset(_expanded(tries.nodes)))
    }
    return replace(record, jobs=jobs)


def heard(record: Record, now: float, code: str) -> Record:
    """The record after a program tried to end instances; `code`: why it could end none."""
    if not code:
        return replace(record, ends=RefusedEnds())
    before = record.ends if abs(now - record.ends.at) < SHUT_SECONDS else RefusedEnds()
    since = before.since if before.count else now
    return replace(record, ends=RefusedEnds(before.count + 1, code, since, now))


def _judged(tries: Tries | None, parts: Sequence[JobLaunch], now: float, rate: Rate) -> Tries:
    """The tries of a job, or of a het job's parts, with this one or with the verdict against it."""
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
    except BadName:  # a damaged file: no node is called so
        return (hostlist,)


def _shut_text(seconds: float, code: str) -> str:
    """Say why nothing is launched at all."""
    return (
        f"EC2 has ended nothing for {_minutes(seconds)} ({code}): nothing is started until it does"
    )


def _loop_text(started: int, asked: int, seconds: float) -> str:
    """Say why a job that does not begin is held."""
    return (
        f"{started} instances were started for its {asked} nodes within {_minutes(seconds)},"
        " and it has not begun"
    )


def _doubted_text(count: int) -> str:
    """Say why a job waits for what became of its launches."""
    return (
        f"{count} instances may have been started for it by launches that got no answer;"
        " that is settled within minutes"
    )


def _too_large_text(asked: int, rate: Rate) -> str:
    """Say why a job above the told rate is held."""
    return (
        f"{asked} nodes are more than the {rate.most:.0f} instances that aws.instance_rate"
        f" (burst {rate.burst:g}, per_second {rate.per_second:g}) starts within"
        f" {rate.seconds:.0f} s, half of slurm.resume_timeout. {_mend(rate)}"
    )


def _too_slow_text(asked: int, started: int, rate: Rate) -> str:
    """Say why a job that EC2 served too slowly is held."""
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
