"""Launch the instances of many jobs: equal ones in common calls, and each job all or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.launch.batching import Want
from slurmplugins.launch.launch_call import Calls
from slurmplugins.launch.pool_launch import Decision, Lane
from slurmplugins.state.launch_budget_file import Starts

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.errors import NotEnded
    from slurmplugins.launch.ec2_quotas import Quotas
    from slurmplugins.launch.request_tracker import Board
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import JobLaunch, PoolAsk
    from slurmplugins.model.offering import Rung
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import Brake
    from slurmplugins.state.unavailable_offerings import OfferingMemory
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log
    from slurmplugins.system.workers import Crew

NOTHING_KEPT: Final[Mapping[NodeName, NotEnded]] = MappingProxyType({})


class Launcher:
    """Launches the instances of one run's jobs."""

    def __init__(
        self,
        *,
        cluster: str,
        cloud: Cloud,
        journal: Journal,
        memory: OfferingMemory,
        clock: Clock,
        log: Log,
        # Returns a new attempt id.
        attempt: Callable[[], str],
        # Returns numbers in [0, 1).
        jitter: Callable[[], float],
        # The monotonic time after which no further offering is tried.
        deadline: float,
        # The monotonic time after which a call that waited for its turn is not made.
        latest: float,
        crew: Crew,
        quotas: Quotas,
        brake: Brake,
        # Instances that EC2 starts at once.
        burst: float,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._journal = journal
        self._memory = memory
        self._clock = clock
        self._log = log
        self._attempt = attempt
        self._jitter = jitter
        self._deadline = deadline
        self._latest = latest
        self._crew = crew
        self._quotas = quotas
        self._brake = brake
        self._burst = burst
        self.started = Starts()

    def launch(
        self,
        jobs: Sequence[JobLaunch],
        run: str,
        board: Board,
        kept: Mapping[NodeName, NotEnded] = NOTHING_KEPT,
    ) -> None:
        """Launch instances for every node of each job.

        Each job's result goes to the board: its instances, or the reason why it has none. `kept`
        has nodes whose instance should end and lives. A request with one of them gets nothing.
        """
        calls = self._calls(run)
        jobs = _refused(jobs, board, kept)
        wants = [
            _Wanted(Want(turn, job.job, ask.nodes), ask)
            for turn, job in enumerate(jobs)
            for ask in job.asks
        ]
        wants = _hopeful(wants, board) if kept else wants
        first, last = _postponed(wants, board, self._memory.setbacks())
        cautious = {*first, *last}
        rest = [item for item in wants if item not in cautious]

        def in_turn() -> None:
            self._work(first, calls, board)
            self._work(_hopeful(last, board), calls, board)

        at_once = [lambda: self._work(rest, calls, board), *([in_turn] if first else [])]
        self._crew.map(lambda work: work(), at_once)

    def _work(self, wants: Sequence[_Wanted], calls: Calls, board: Board) -> None:
        grouped: dict[tuple[str, tuple[Rung, ...]], list[_Wanted]] = {}
        for item in wants:
            grouped.setdefault((item.ask.pool.name, item.ask.ladder), []).append(item)
        lanes = [
            Lane(
                cluster=self._cluster,
                pool=items[0].ask.pool,
                ladder=ladder,
                wants=[item.want for item in items],
                calls=calls,
                crew=self._crew,
                memory=self._memory,
                clock=self._clock,
                attempt=self._attempt,
                quotas=self._quotas,
                burst=self._burst,
                decided=board.decided,
                named=board.named,
            )
            for (_, ladder), items in grouped.items()
        ]
        self._crew.map(Lane.work, lanes)

    def end(self, ids: Sequence[str], run: str) -> None:
        """Terminate surplus instances; reconcile handles those that still live."""
        self._calls(run).end(ids)

    def _calls(self, run: str) -> Calls:
        return Calls(
            run=run,
            cloud=self._cloud,
            journal=self._journal,
            clock=self._clock,
            log=self._log,
            jitter=self._jitter,
            deadline=self._deadline,
            latest=self._latest,
            brake=self._brake,
            started=self.started,
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Wanted:
    """A node request, and the plan's ask for it."""

    want: Want
    ask: PoolAsk


def _refused(
    jobs: Sequence[JobLaunch], board: Board, kept: Mapping[NodeName, NotEnded]
) -> list[JobLaunch]:
    """Fail the jobs that have a kept node; return the others."""
    left: list[JobLaunch] = []
    for job in jobs:
        node = next((node for ask in job.asks for node in ask.nodes if node in kept), None)
        if node is None:
            left.append(job)
            continue
        wants = [Want(0, job.job, ask.nodes) for ask in job.asks]
        board.decided([Decision(want, error=kept[node]) for want in wants])
    return left


def _hopeful(wants: Sequence[_Wanted], board: Board) -> list[_Wanted]:
    """Drop node requests that help no request any more.

    The board hears of them. Returns the others.
    """
    doomed = {item for item in wants if board.doomed(item.want.nodes)}
    board.decided([Decision(item.want) for item in doomed])
    return [item for item in wants if item not in doomed]


def _postponed(
    wants: Sequence[_Wanted], board: Board, setbacks: Container[str]
) -> tuple[list[_Wanted], list[_Wanted]]:
    """Choose the node requests to try first and last.

    Both belong to requests that will hardly get all their nodes. Offerings that were refused
    everywhere a moment ago are tried first. The rest of such a request comes last: its instances
    would only be terminated again, and their first minute is billed.
    """
    unlikely = {
        item: None
        for item in wants
        if all(offering.key in setbacks for rung in item.ask.ladder for offering in rung)
    }
    if not unlikely:
        return [], []
    poor = {request for item in unlikely for request in board.requests(item.want.nodes)}
    last = [
        item
        for item in wants
        if item not in unlikely and poor.issuperset(board.requests(item.want.nodes))
    ]
    waiting = {request for item in last for request in board.requests(item.want.nodes)}
    first = [item for item in unlikely if waiting & board.requests(item.want.nodes)]
    return first, last
