"""Run one pass of the burst governor: read Slurm, decide, act, remember."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import governor as governor_config
from slurmplugins.errors import SlurmError, SlurmRefused, SlurmUnreachable
from slurmplugins.governor import spending_file
from slurmplugins.governor.plan import QueueSnapshot, plan
from slurmplugins.governor.spending import REFUSAL_SECONDS, Refusal, spent
from slurmplugins.governor.words import sentence
from slurmplugins.model.instance import Lifecycle, PolicyName
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.config.governor import GovernorConfig
    from slurmplugins.governor.plan import GovernorPlan, PartitionChange
    from slurmplugins.governor.spending import Spending
    from slurmplugins.model.instance import Offering, Policy, Pool
    from slurmplugins.model.queued_job import QueuePartition
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.slurm.queue import Queue
    from slurmplugins.system.logger import Log

PASS_AGE: Final = 300.0
"""Seconds. reconcile looks at EC2 every 15: without a pass, nobody knows whether EC2 answers."""


def read_snapshot(
    queue: Queue, config: BurstConfig, rules: GovernorConfig, state: Path, now: float
) -> QueueSnapshot:
    """Read Slurm and the head's state files. Raises SlurmError or StateError."""
    memory = spending_file.load(Path(rules.folder))
    partitions = queue.partitions(node_prices(config))
    return QueueSnapshot(
        now=now,
        config=rules,
        jobs=queue.jobs(),
        partitions=partitions,
        spending=memory,
        cloud_problems={
            rule.cloud: problem
            for rule in rules.rules.values()
            if (problem := cloud_problem(config, rule.cloud, state, now))
        },
    )


def run_pass(snapshot: QueueSnapshot, queue: Queue, slurm: Slurm, log: Log) -> None:
    """Carry out one pass.

    The intent is saved before the first change: a job that may burst is never forgotten, also if
    this program is killed. Raises StateError if it can't be saved, with nothing changed then.
    """
    made, folder = plan(snapshot), Path(snapshot.config.folder)
    spending_file.save(folder, _intent(made, snapshot))
    final = made.spending
    for change in made.changes:
        final = _carry_out(change, final, snapshot, queue, log)
    refused = {item.job for item in made.changes if item.family in final.refusals}
    for notice in made.notices:
        if notice.job in refused:
            continue
        try:
            slurm.comment(notice.job, notice.text)
        except SlurmUnreachable:
            final = replace(final, notes=_without(final.notes, notice.job))
            break
        except SlurmRefused as error:
            log.warning(LogEvent.JOB_COMMENT_FAILED, job=notice.job, message=error.message)
    spending_file.save(folder, final)


def _intent(made: GovernorPlan, snapshot: QueueSnapshot) -> Spending:
    """Return the memory with each job that may burst meanwhile."""
    taken_back = {change.family for change in made.changes if not change.bursts}
    old = {
        number: replace(burst, seen=burst.seen and number not in taken_back)
        for number, burst in snapshot.spending.bursts.items()
    }
    return replace(made.spending, bursts={**old, **made.spending.bursts}, notes={})


def _carry_out(
    change: PartitionChange,
    memory: Spending,
    snapshot: QueueSnapshot,
    queue: Queue,
    log: Log,
) -> Spending:
    """Change one job's partitions; return the memory that holds then."""
    event = LogEvent.JOB_MAY_BURST if change.bursts else LogEvent.JOB_TAKEN_BACK
    try:
        queue.set_partitions(change.label, change.partitions)
    except SlurmError as error:
        log.warning(LogEvent.JOB_PARTITIONS_NOT_CHANGED, job=change.family, message=error.message)
        old = snapshot.spending.bursts.get(change.family)
        # After no answer it may have happened. Slurm's refusal means that it did not.
        if isinstance(error, SlurmRefused) or not change.bursts:
            bursts = _without(memory.bursts, change.family)
            if old is not None:
                bursts[change.family] = old
            memory = replace(memory, bursts=bursts)
        refusal = Refusal(snapshot.now + REFUSAL_SECONDS, error.message[:300])
        return replace(memory, refusals={**memory.refusals, change.family: refusal})
    log.info(event, job=change.family, partitions=",".join(change.partitions), why=change.why)
    return memory


def _without(mapping: Any, key: int) -> dict[int, Any]:
    return {number: item for number, item in mapping.items() if number != key}


def node_prices(config: BurstConfig) -> dict[str, str]:
    """Return the dearest price of each node, empty if not known."""
    by_pool = {
        name: _dearest(pool, config.policies.get(pool.partition))
        for name, pool in config.pools.items()
    }
    return {str(node): by_pool[pool] for node, pool in config.pool_by_node.items()}


def _dearest(pool: Pool, policy: Policy | None) -> str:
    """Return the dearest price that the partition's policy may take."""
    name = policy.name if policy else PolicyName.AS_LISTED
    prices = [Decimal(item.price) for item in pool.offerings if _may_be_taken(item, name)]
    # A capacity block was paid for in advance, and a job there costs nothing more.
    known = prices and all(price > 0 for price in prices)
    return f"{max(prices):f}" if known else ""


def _may_be_taken(offering: Offering, policy: PolicyName) -> bool:
    if offering.block:
        return False
    if policy is PolicyName.SPOT_ONLY:
        return offering.lifecycle is Lifecycle.SPOT
    return policy is not PolicyName.ON_DEMAND_ONLY or offering.lifecycle is not Lifecycle.SPOT


def cloud_problem(config: BurstConfig, partition: str, state: Path, now: float) -> str:
    """Return why nothing may be launched for the partition, if so."""
    last_pass = LastPass.load(state)
    if last_pass.blocked_by:
        return f"reconcile is blocked: {last_pass.blocked_by}"[:200]
    if now - last_pass.at > PASS_AGE:
        return "reconcile has not looked at EC2 for minutes"
    record = circuit_breaker.load(state)
    pools = [name for name, pool in config.pools.items() if pool.partition == partition]
    shut = [name for name in pools if name in record.pools and record.pools[name].protected]
    if pools and len(shut) == len(pools):
        return f"the instances of pool {', '.join(shut)} do not come up"
    return ""


def printable(made: GovernorPlan, snapshot: QueueSnapshot) -> dict[str, Any]:
    """Return the plan and its facts as values for JSON."""
    accounts = sorted({name for rule in snapshot.config.rules.values() for name in rule.budgets})
    return {
        "at": snapshot.now,
        "decisions": [
            {
                "job": item.job,
                "label": item.label,
                "account": item.account,
                "rack": item.rack,
                "cloud": item.cloud,
                "bursts": item.bursts,
                "reason": item.reason.value,
                "text": sentence(item),
                "waited": item.waited,
                "expected_in": item.expected_in,
                "usd": None if item.cost is None else f"{item.cost.usd:f}",
                "nodes": None if item.cost is None else item.cost.nodes,
            }
            for item in made.decisions
        ],
        "accounts": [
            {
                "account": name,
                "usd_spent": f"{spent(made.spending, name, snapshot.now):.2f}",
                "usd_committed": f"{made.committed.get(name, Decimal(0)):.2f}",
                "usd_per_month": {
                    rule.rack: f"{rule.budgets[name]:f}"
                    for rule in snapshot.config.rules.values()
                    if name in rule.budgets
                },
            }
            for name in accounts
        ],
        "problems": dict(snapshot.cloud_problems),
        "governor": governor_config.to_json(snapshot.config),
        "partitions": [_partition_json(item) for item in snapshot.partitions.values()],
    }


def _partition_json(item: QueuePartition) -> dict[str, Any]:
    return {
        "name": item.name,
        "up": item.up,
        "max_time": item.max_time,
        "tier": item.tier,
        "factor": item.factor,
        "allowed_accounts": list(item.allowed_accounts),
        "denied_accounts": list(item.denied_accounts),
        "allowed_qos": list(item.allowed_qos),
        "denied_qos": list(item.denied_qos),
        "for_groups": item.for_groups,
        "groups": [
            {
                "count": group.count,
                "cpus": group.cpus,
                "memory_mib": group.memory_mib,
                "gpus": dict(group.gpus),
                "features": sorted(group.features),
                "usd_per_hour": group.usd_per_hour,
            }
            for group in item.groups
        ],
    }
