"""The burst governor's decisions about waiting jobs, for people's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.config import governor as governor_config, paths
from slurmplugins.governor.plan import plan
from slurmplugins.governor.run import read_snapshot
from slurmplugins.governor.words import sentence
from slurmplugins.head.report import BurstReport

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.execution.engine import Engine
    from slurmplugins.slurm.queue import Queue


def burst_reports(
    engine: Engine, queue: Queue, job: int, config: Path = paths.BURST
) -> tuple[BurstReport, ...]:
    """Return the decisions about a waiting job or array.

    Slurm is asked only if the cluster has rules. Raises EngineError.
    """
    rules = governor_config.load(config)
    if not rules.rules:
        return ()
    snapshot = read_snapshot(queue, engine.config, rules, engine.state, engine.clock.now())
    families = {item.id: item.family for item in snapshot.jobs}
    return tuple(
        BurstReport(
            job=item.job,
            label=item.label,
            bursts=item.bursts,
            reason=item.reason.value,
            text=sentence(item),
        )
        for item in plan(snapshot).decisions
        if job in (item.job, families.get(item.job))
    )
