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
    machines = machines_by_node(listed)
    adopt: list[Assignment] = []
    launches: list[JobLaunch] = []
    replace: list[Instance] = []
    failures: list[Failure] = []
    busy: list[NodeName] = []
    ids = {item.id for item in listed}
    unlisted = {m.node: m for m in claims.launched.values() if m.instance_id not in ids}
    for ask in asks:
        missing: list[NodeName] = []
        problem = _problem(ask, machines, claims, config)
        if problem is not None:
            failures.append(problem)
            continue
        for node in ask.nodes:
            if node in claims.busy:
                busy.append(node)
                continue
            fresh, stale = _sort(machines.get(node, ()), claims, config, now)
            replace += stale
            if fresh:
                adopt.append(_assignment(node, fresh[0]))
            elif node in unlisted:
                adopt.append(unlisted[node])
            else:
                missing.append(node)
        if missing:
            launches.append(JobLaunch(ask.job, _by_pool(missing, config), ask.nodes))
    return ResumePlan(tuple(adopt), tuple(launches), tuple(replace), tuple(failures), tuple(busy))


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


def _problem(
    ask: JobAsk,
    machines: Mapping[NodeName, Sequence[Instance]],
    claims: Claims,
    config: BurstConfig,
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
        and not any(item.state.live for item in machines.get(node, ()))
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


def _assignment(node: NodeName, machine: Instance) -> Assignment:
    return Assignment(node, machine.id, machine.address, machine.type)


def _by_pool(nodes: Iterable[NodeName], config: BurstConfig) -> tuple[PoolAsk, ...]:
    grouped: dict[str, list[NodeName]] = defaultdict(list)
    for node in nodes:
        grouped[config.pool_by_node[node]].append(node)
    return tuple(PoolAsk(config.pools[pool], tuple(names)) for pool, names in grouped.items())
