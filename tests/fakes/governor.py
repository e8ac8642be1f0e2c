"""Jobs, racks and a cloud for the burst governor, from which its tests start."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from slurmplugins.config.governor import GovernorConfig, RackRule
from slurmplugins.governor.decide import Facts
from slurmplugins.governor.plan import QueueSnapshot
from slurmplugins.governor.spending import Spending
from slurmplugins.model.queued_job import NodeGroup, QueuedJob, QueuePartition, Request

NOW = 1_795_650_000.0  # 2026-11-25T23:40:00Z
RACK = QueuePartition("rack", groups=(NodeGroup(2, 8, 32_000, usd_per_hour="0"),))
CLOUD = QueuePartition("cloud", groups=(NodeGroup(4, 8, 32_000, usd_per_hour="1.20"),))
RULE = RackRule("rack", "cloud", after=1800.0, budgets={"vision": Decimal(100)})
CONFIG = GovernorConfig({"rack": RULE}, boot=600.0, tail=300.0)


def a_job(number: int = 7, **changes: Any) -> QueuedJob:
    """Return a job of one hour that has waited an hour."""
    request = {key: changes.pop(key) for key in list(changes) if hasattr(Request, key)}
    job = QueuedJob(
        id=number,
        label=str(number),
        states=frozenset({"PENDING"}),
        partitions=("rack",),
        account="vision",
        qos="normal",
        request=Request(cpus=8, memory_mib=8000, **request),
        reason="Resources",
        submitted_at=NOW - 3600,
        eligible_at=NOW - 3600,
        time_limit=3600.0,
    )
    return replace(job, **changes)


def facts(**changes: Any) -> Facts:
    """Return facts that are not against a burst."""
    given = {"now": NOW, "rack": RACK, "cloud": CLOUD, "remaining_usd": Decimal(100), **changes}
    return Facts(**given)


def snapshot(*jobs: QueuedJob, spending: Spending | None = None, **changes: Any) -> QueueSnapshot:
    """Return a queue of these jobs."""
    given = {"now": NOW, "config": CONFIG, "partitions": {"rack": RACK, "cloud": CLOUD}, **changes}
    return QueueSnapshot(jobs=jobs, spending=spending or Spending(), **given)
