"""Run one pass of the burst governor: read Slurm, decide, act, remember."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplugins.config import governor as governor_config
from slurmplugins.errors import SlurmError, SlurmRefused, SlurmUnreachable
from slurmplugins.governor import spending_file
from slurmplugins.governor.plan import QueueSnapshot, plan
from slurmplugins.governor.spending import REFUSAL_SECONDS, Refusal, spent
from slurmplugins.governor.words import sentence
from slurmplugins.model.hostlist import NodeName
from slurmplugins.model.instance import Lifecycle, PolicyName
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler.pass_state import PASS_AGE, LastPass
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.config.governor import GovernorConfig
    from slurmplugins.governor.plan import GovernorPlan, PartitionChange
    from slurmplugins.governor.spending import Burst, Spending
    from slurmplugins.model.instance import Offering
    from slurmplugins.model.queued_job import QueuePartition
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.slurm.queue import Queue
    from slurmplugins.system.logger import Log


def read_snapshot(
    queue: Queue, config: BurstConfig, rules: GovernorConfig, state: Path, now: float
) -> QueueSnapshot:
    """Read Slurm and the head's state files. Raises SlurmError or StateError."""
    memory = spending_file.load(Path(rules.folder))
    partitions = queue.partitions(partial(node_price, config))
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
    final = _carry_out_all(made, snapshot, queue, log)
    final = _notify(made, final, slurm, log)
    spending_file.save(folder, final)


def _intent(made: GovernorPlan, snapshot: QueueSnapshot) -> Spending:
    """Return the memory with each job that may burst meanwhile."""
    taken_back = {change.family for change in made.changes if not change.bursts}
    old = {
        number: replace(burst, seen=burst.seen and number not in taken_back)
        for number, burst in snapshot.spending.bursts.items()
    }
    return replace(made.spending, bursts={**old, **made.spending.bursts}, notes={})


def _carry_out_all(made: GovernorPlan, snapshot: QueueSnapshot, queue: Queue, log: Log) -> Spending:
    """Change the jobs' partitions; return the memory that holds then.

    The first call without an answer is the last one. What it did, the next pass sees.
    """
    memory, old_bursts = made.spending, snapshot.spending.bursts
    unreached = False
    for change in made.changes:
        refusal = None
        if not unreached:
            try:
                _carry_out(change, queue, log)
                continue
            except SlurmUnreachable as error:
                unreached = True
                _log_failure(change, error, log)
            except SlurmRefused as error:
                refusal = Refusal(snapshot.now + REFUSAL_SECONDS, error.message[:300])
                _log_failure(change, error, log)
        memory = _after_failure(change, refusal, memory, old_bursts.get(change.family))
    return memory


def _carry_out(change: PartitionChange, queue: Queue, log: Log) -> None:
    """Change one job's partitions. Raises SlurmUnreachable or SlurmRefused."""
    queue.set_partitions(change.label, change.partitions)
    event = LogEvent.JOB_MAY_BURST if change.bursts else LogEvent.JOB_TAKEN_BACK
    log.info(event, job=change.family, partitions=",".join(change.partitions), why=change.why)


def _after_failure(
    change: PartitionChange, refusal: Refusal | None, memory: Spending, old: Burst | None
) -> Spending:
    """Return the memory after a change that failed, or may have failed.

    A job may burst unless Slurm has surely refused it the cloud.
    """
    bursts = dict(memory.bursts)
    if not change.bursts and old is not None:
        bursts[change.family] = old
    elif change.bursts and refusal is not None and change.tasks == 1 and old is None:
        bursts.pop(change.family, None)
    refusals = memory.refusals if refusal is None else {**memory.refusals, change.family: refusal}
    return replace(memory, bursts=bursts, refusals=refusals)


def _log_failure(change: PartitionChange, error: SlurmError, log: Log) -> None:
    log.warning(LogEvent.JOB_PARTITIONS_NOT_CHANGED, job=change.family, message=error.message)


def _notify(made: GovernorPlan, memory: Spending, slurm: Slurm, log: Log) -> Spending:
    """Comment on the jobs; return the memory with written notes."""
    failed_jobs = {change.job for change in made.changes if change.family in memory.refusals}
    unwritten: set[int] = set()
    unreached = False
    for notice in made.notices:
        if unreached or notice.job in failed_jobs:
            unwritten.add(notice.job)
            continue
        try:
            slurm.comment(notice.job, notice.text)
        except SlurmUnreachable:
            unreached = True
            unwritten.add(notice.job)
        except SlurmRefused as error:
            log.warning(LogEvent.JOB_COMMENT_FAILED, job=notice.job, message=error.message)
    notes = {job: text for job, text in memory.notes.items() if job not in unwritten}
    return replace(memory, notes=notes)


def node_price(config: BurstConfig, partition: str, node: str) -> str:
    """Return a node's dearest price in a partition.

    It is "0" for a rack's, and empty if not known.
    """
    pool_name = config.pool_by_node.get(NodeName(node))
    if pool_name is None:
        return "0"
    policy, pool = config.policy_of(partition).name, config.pools[pool_name]
    offerings = [item for item in pool.offerings if _may_be_taken(item, policy)]
    # A capacity block was paid for in advance: a job there costs nothing more.
    prices = [Decimal(item.price) for item in offerings if not item.block]
    if any(price <= 0 for price in prices) or not offerings:
        return ""
    return f"{max(prices, default=Decimal(0)):f}"


def _may_be_taken(offering: Offering, policy: PolicyName) -> bool:
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
                "usd_spent": f"{spent(made.spending, name, snapshot.now):f}",
                "usd_committed": f"{made.committed.get(name, Decimal(0)):f}",
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
