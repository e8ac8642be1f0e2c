"""What resume and suspend should do, from what Slurm asks and what the cloud has. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins import tags
from slurmplugins.actions import Terminate
from slurmplugins.model import Assignment, Failure, JobLaunch, PoolAsk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.config import BurstConfig
    from slurmplugins.model import Claims, EndCause, Instance, JobAsk, Node
    from slurmplugins.names import NodeName

UNKNOWN_NODE: Final = "unknown-node"
IN_DOUBT: Final = "launch-in-doubt"


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """`adopt`: machines there already. `replace`: machines too old to be what Slurm waits for, to
    be ended first. `busy`: nodes left to the run that is at them.
    """

    adopt: tuple[Assignment, ...] = ()
    launches: tuple[JobLaunch, ...] = ()
    replace: tuple[Instance, ...] = ()
    failures: tuple[Failure, ...] = ()
    busy: tuple[NodeName, ...] = ()

    @property
    def claimed(self) -> tuple[NodeName, ...]:
        """The nodes this run must have for itself."""
        return tuple(
            node for launch in self.launches for ask in launch.asks for node in ask.nodes
        ) + tuple(item.node for item in self.adopt)


def resume(
    asks: Sequence[JobAsk],
    listed: Sequence[Instance],
    claims: Claims,
    config: BurstConfig,
    now: float,
) -> ResumePlan:
    """Adopt what is there, launch what is missing, job by job.

    `claims` must have been read after `listed`: a machine launched in between is then in one of
    the two, and no node gets a second one.
    """
    draft = _Draft(config, claims, machines_by_node(listed), {item.id for item in listed}, now)
    for ask in asks:
        draft.add(ask)
    return ResumePlan(
        adopt=tuple(draft.adopt),
        launches=tuple(draft.launches),
        replace=tuple(draft.replace),
        failures=tuple(draft.failures),
        busy=tuple(draft.busy),
    )


def suspend(
    wanted: Iterable[NodeName],
    listed: Sequence[Instance],
    nodes: Mapping[str, Node],
    cause: EndCause,
) -> tuple[Terminate, ...]:
    """End the machines of those nodes that Slurm has let go of at this moment.

    A node that is up again (a late run, a second resume) keeps its machine.
    """
    machines = machines_by_node(listed)
    return tuple(
        Terminate(machine, cause, "Slurm powered the node down")
        for node in wanted
        if node in nodes and nodes[node].off
        for machine in machines.get(node, ())
        if not machine.state.over
    )


def machines_by_node(listed: Iterable[Instance]) -> dict[NodeName, list[Instance]]:
    """The cluster's compute machines by node, oldest first."""
    found: dict[NodeName, list[Instance]] = defaultdict(list)
    for machine in sorted(listed, key=lambda item: (item.launched_at, item.id)):
        if machine.role == tags.ROLE_COMPUTE and machine.node is not None:
            found[machine.node].append(machine)
    return dict(found)


class _Draft:
    """A plan in the making, job by job."""

    def __init__(
        self,
        config: BurstConfig,
        claims: Claims,
        machines: Mapping[NodeName, Sequence[Instance]],
        ids: set[str],
        now: float,
    ) -> None:
        self._config = config
        self._claims = claims
        self._machines = machines
        self._now = now
        recent = claims.launched.values()
        self._unlisted = {item.node: item for item in recent if item.instance_id not in ids}
        self.adopt: list[Assignment] = []
        self.launches: list[JobLaunch] = []
        self.replace: list[Instance] = []
        self.failures: list[Failure] = []
        self.busy: list[NodeName] = []

    def add(self, ask: JobAsk) -> None:
        problem = _problem(ask, self._machines, self._claims, self._config, self._now)
        if problem is not None:
            self.failures.append(problem)
            return
        missing = [node for node in ask.nodes if not self._has_machine(node)]
        if missing:
            self.launches.append(JobLaunch(ask.job, _by_pool(missing, self._config), ask.nodes))

    def _has_machine(self, node: NodeName) -> bool:
        """Or is about to have one, from another run."""
        if node in self._claims.busy:
            self.busy.append(node)
            return True
        machines = self._machines.get(node, ())
        fresh, stale = _sort(machines, self._claims, self._config, self._now)
        self.replace += stale
        if fresh:
            self.adopt.append(Assignment(node, fresh[0].id, fresh[0].address, fresh[0].type))
        elif node in self._unlisted:
            self.adopt.append(self._unlisted[node])
        else:
            return False
        return True


def _problem(
    ask: JobAsk,
    machines: Mapping[NodeName, Sequence[Instance]],
    claims: Claims,
    config: BurstConfig,
    now: float,
) -> Failure | None:
    """Why this job can't be launched for at all, if so."""
    strangers = [node for node in ask.nodes if config.pool_of(node) is None]
    if strangers:
        text = f"burst.json has no node {strangers[0]}"
        return Failure(ask.job, ask.nodes, UNKNOWN_NODE, message=text)
    unclear = [
        node
        for node in ask.nodes
        if node in claims.doubtful
        and node not in claims.busy
        # One that is condemned, or too old, is not what the unanswered launch may have made.
        and not _sort(machines.get(node, ()), claims, config, now)[0]
    ]
    if unclear:
        text = f"an earlier launch for {unclear[0]} got no answer; it is settled within minutes"
        return Failure(ask.job, ask.nodes, IN_DOUBT, message=text)
    return None


def _sort(
    machines: Iterable[Instance], claims: Claims, config: BurstConfig, now: float
) -> tuple[list[Instance], list[Instance]]:
    """Live machines that Slurm may still wait for, and those that booted too long ago.

    Slurm takes a node that is powering up only if it booted after it asked, so a machine left over
    from before would never be let in.
    """
    live = [item for item in machines if item.state.live and item.id not in claims.ended]
    fresh = [item for item in live if now - item.launched_at < config.resume_timeout]
    return fresh, [item for item in live if item not in fresh]


def _by_pool(nodes: Iterable[NodeName], config: BurstConfig) -> tuple[PoolAsk, ...]:
    grouped: dict[str, list[NodeName]] = defaultdict(list)
    for node in nodes:
        grouped[config.pool_by_node[node]].append(node)
    return tuple(PoolAsk(config.pools[pool], tuple(names)) for pool, names in grouped.items())
