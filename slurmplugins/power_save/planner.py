"""Plan a run of resume, from Slurm's requests and the instances that EC2 lists. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import NotEnded
from slurmplugins.launch import ec2_quotas, fallback
from slurmplugins.launch.fallback import Spend, by_pool
from slurmplugins.model.instance import Assignment, InstanceState, machines_by_node
from slurmplugins.model.launch import IN_DOUBT, Failure, JobLaunch, PoolAsk, ResumePlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import JobRequest
    from slurmplugins.model.node import Node
    from slurmplugins.model.offering import Pool
    from slurmplugins.state.journal_view import JournalView


UNKNOWN_NODE: Final = "unknown-node"

NO_OFFERING: Final = "no-offering"
NOT_AWAITED: Final = "not-awaited"
UNCLEAR: Final = "instance-unclear"


def resume(
    asks: Sequence[JobRequest],
    listed: Sequence[Instance],
    claims: JournalView,
    config: BurstConfig,
    now: float,
    *,
    waited: Mapping[int, float] | None = None,
) -> ResumePlan:
    """Adopt existing instances and plan the missing ones, job by job.

    `claims` must be read after `listed`. An instance launched in between is then in one of the two,
    and no node gets a second one. `waited` has the jobs' seconds in the queue.
    """
    draft = _Draft(config, claims, claims.named(listed), now, waited or {})
    for ask in asks:
        draft.add(ask)
    return ResumePlan(
        adopt=tuple(draft.adopt),
        launches=tuple(draft.launches),
        replace=tuple(draft.replace),
        failures=tuple(draft.failures),
        busy=tuple(draft.busy),
        asks=tuple(asks),
        unended=tuple(draft.unended),
        filling=ec2_quotas.fillers(claims.named(listed), claims.ended, config.static),
    )


def awaited(
    asks: Sequence[JobRequest], plan: ResumePlan, nodes: Mapping[NodeName, Node]
) -> tuple[list[JobRequest], list[Failure]]:
    """Drop the asks that Slurm no longer waits for.

    `nodes` are the plan's nodes, as Slurm has them now. Returns the asks that are left, and a
    failure for each dropped one.

    - A job has ended or starts anew if one of its nodes is off or down. The same holds if a node
      has no instance and is not waited for.
    - A node that is up keeps an instance that is too old for the plan.
    - A node with an odd record counts as waited for, since Slurm has asked for it. No instance is
      terminated for it.
    """
    up = {name for name, node in nodes.items() if not (node.powering_up or node.off or node.down)}
    at_work = up.intersection(item.node for item in plan.replace if item.node is not None)
    fine = {name for name, node in nodes.items() if node.powering_up} | at_work
    fine |= up.intersection(item.node for item in plan.adopt)
    odd = {name for name, node in nodes.items() if not node.readable}
    fine |= odd.difference(item.node for item in plan.replace if item.node is not None)
    lost = set(plan.claimed) - fine
    left: list[JobRequest] = []
    failures: list[Failure] = []
    for ask in asks:
        if (gone := next((node for node in ask.nodes if node in lost), None)) is None:
            mine = tuple(node for node in ask.nodes if node not in at_work)
            shared = tuple(node for node in ask.shared if node not in at_work)
            left.append(replace(ask, nodes=mine, shared=shared))
        else:
            text = f"Slurm does not wait for {gone} any more"
            failures.append(Failure(ask.job, ask.nodes, NOT_AWAITED, message=text))
    return left, failures


class _Draft:
    """A plan in the making, job by job."""

    def __init__(
        self,
        config: BurstConfig,
        claims: JournalView,
        listed: Sequence[Instance],
        now: float,
        waited: Mapping[int, float],
    ) -> None:
        self._config = config
        self._claims = claims
        self._machines = machines_by_node(listed)
        self._now = now
        self._waited = waited
        self._spend = by_pool(listed)
        ids = {item.id for item in listed}
        recent = claims.launched.values()
        self._unlisted = {item.node: item for item in recent if item.instance_id not in ids}
        ending = claims.ending.values()
        self._unseen = {item.node: item for item in ending if item.instance_id not in ids}
        self.adopt: list[Assignment] = []
        self.launches: list[JobLaunch] = []
        self.replace: list[Instance] = []
        self.failures: list[Failure] = []
        self.busy: list[NodeName] = []
        self.unended: list[Instance] = []

    def add(self, ask: JobRequest) -> None:
        problem = _problem(ask, self._machines, self._claims, self._config, self._now)
        problem = problem or self._unseen_end(ask)
        if problem is not None:
            self.failures.append(problem)
            return
        missing = [node for node in ask.nodes if not self._has_machine(node)]
        if not missing:
            return
        asks = tuple(self._ask(ask, pool, mine) for pool, mine in self._by_pool(missing))
        empty = next((item.pool.name for item in asks if not item.ladder), None)
        if empty is not None:
            text = f"the policy leaves no offering of pool {empty} to this job now"
            self.failures.append(Failure(ask.job, ask.nodes, NO_OFFERING, message=text))
            return
        self.launches.append(JobLaunch(ask.job, asks, ask.nodes))

    def _ask(self, ask: JobRequest, pool: Pool, nodes: tuple[NodeName, ...]) -> PoolAsk:
        """Add the offerings that the policy and the spot bound leave.

        The policy is the partition's, the bound is the pool's.
        """
        partition = ask.partition or pool.partition
        waited = 0.0 if ask.job is None else self._waited.get(ask.job, 0.0)
        ladder = fallback.ladder(pool, self._config.policy_of(partition), waited)
        known = self._spend.get(pool.name, Spend())
        after, ladder = fallback.plan(known, ladder, len(nodes), pool.max_spot_share)
        self._spend[pool.name] = after
        return PoolAsk(pool, nodes, ladder)

    def _by_pool(self, nodes: Iterable[NodeName]) -> Iterator[tuple[Pool, tuple[NodeName, ...]]]:
        grouped: dict[str, list[NodeName]] = defaultdict(list)
        for node in nodes:
            grouped[self._config.pool_by_node[node]].append(node)
        for pool, mine in grouped.items():
            yield self._config.pools[pool], tuple(mine)

    def _has_machine(self, node: NodeName) -> bool:
        """Return whether the node has an instance, or another run provides one.

        Records the instance as adopted, or as one to replace or terminate.
        """
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
            ended = self._claims.ended
            self.unended += [item for item in machines if item.state.live and item.id in ended]
            return False
        return True

    def _unseen_end(self, ask: JobRequest) -> Failure | None:
        """Return a failure if an unlisted instance must still be terminated.

        Its termination was decided, but EC2 can't carry it out before it lists the instance.
        Nothing is launched beside it.
        """
        for node in ask.nodes:
            unseen = self._unseen.get(node)
            if unseen is None or node in self._claims.busy or node in self._unlisted:
                continue
            machines = self._machines.get(node, ())
            if not _sort(machines, self._claims, self._config, self._now)[0]:
                text = f"{unseen.instance_id} of {node} is to end, and EC2 does not list it yet"
                return Failure(ask.job, ask.nodes, NotEnded.slug, message=text)
        return None


def _problem(
    ask: JobRequest,
    machines: Mapping[NodeName, Sequence[Instance]],
    claims: JournalView,
    config: BurstConfig,
    now: float,
) -> Failure | None:
    """Return why this job gets no launch at all, if so."""
    strangers = [node for node in ask.nodes if config.pool_of(node) is None]
    if strangers:
        text = f"burst.json has no node {strangers[0]}"
        # slurm.conf and burst.json are of one cluster.yaml: a person must deploy it again.
        return Failure(ask.job, ask.nodes, UNKNOWN_NODE, message=text, hold=True)
    unclear = [
        node
        for node in ask.nodes
        if any(item.state.live and item.id in claims.strange for item in machines.get(node, ()))
        or (
            (node in claims.settling or (node in claims.doubtful and node not in claims.busy))
            # The unanswered launch made no instance that is too old or to be terminated.
            and not _sort(machines.get(node, ()), claims, config, now)[0]
        )
    ]
    if unclear:
        text = f"an earlier launch for {unclear[0]} got no answer; it is settled within minutes"
        return Failure(ask.job, ask.nodes, IN_DOUBT, message=text)
    states = (item for node in ask.nodes for item in machines.get(node, ()))
    odd = next((item for item in states if item.state is InstanceState.UNCLEAR), None)
    if odd is not None:  # it may be at work, or come back to it
        text = f"{odd.id}, of {odd.node}, is in a state unknown here: {odd.unclear!r}"
        return Failure(ask.job, ask.nodes, UNCLEAR, message=text)
    return None


def _sort(
    machines: Iterable[Instance], claims: JournalView, config: BurstConfig, now: float
) -> tuple[list[Instance], list[Instance]]:
    """Split live instances into usable ones and stale ones.

    Slurm takes a node that is powering up only if it booted after Slurm asked for it. So an
    instance left over from before, young or old, would never be let in. An instance of another pool
    has another shape.
    """
    live = [item for item in machines if item.state.live and item.id not in claims.ended]
    fresh = [
        item
        for item in live
        if claims.age(item, now) < config.resume_timeout
        and item.id not in claims.let_go
        and (item.node is None or item.pool == config.pool_by_node.get(item.node))
    ]
    return fresh, [item for item in live if item not in fresh]
