"""Benchmark from EC2's notice to training again, on a real cluster.

Each figure is a difference between two times that are recorded anyway. They come from the node
agent's stop request, the checkpoint's commit, Slurm's accounting (whole seconds) and the step log.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.slurm.conftest import Cluster
from tests.slurm.training_job import DIGITS, HOME, TORCHRUN, TrainingJob, submit
from tests.slurm.waiting import until
from toolkit.commands.local_options import control_client
from toolkit.config import load
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients

if TYPE_CHECKING:
    from pathlib import Path

STEPS_FIRST = 60
NOTICE = 120.0
PATIENCE = 240.0
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Interruption:
    """An interruption, in seconds since the notice.

    `dead` alone is counted from the job's exit.
    """

    asked: float
    saved: float
    ended: float
    dead: float  # from the attempt's end to the next one's start, as sacct has them
    trains: float


def measure(config: Path, repeats: int = REPEATS) -> list[Interruption]:
    """Interrupt that many jobs of two nodes, one after the other."""
    found = load(config)
    cluster = Cluster(config, Head(Clients(found), found))
    return [_once(cluster) for _ in range(repeats)]


def medians(runs: list[Interruption]) -> dict[str, float]:
    """Return the median of each figure."""
    return {
        name: round(statistics.median(getattr(run, name) for run in runs), 1)
        for name in Interruption.__slots__
    }


def _once(cluster: Cluster) -> Interruption:
    job = submit(cluster, TORCHRUN, DIGITS, "--epochs=400")
    try:
        job.trained(STEPS_FIRST)
        noticed = time.time()
        control_client(None).post("interrupt", {"target": job.nodes()[-1], "notice": NOTICE})
        again = until("a step of the next attempt", lambda: _first_step(job), PATIENCE)
        return _figures(job, noticed, again)
    finally:
        cluster.run("scancel", job.number)


def _first_step(job: TrainingJob) -> float:
    """Return the time of the second attempt's first step, or 0."""
    done = (step["at"] for step in job.log() if step.get("attempt") == 1 and "samples" in step)
    return next(done, 0.0)


def _figures(job: TrainingJob, noticed: float, again: float) -> Interruption:
    cluster = job.cluster
    request = json.loads(cluster.run("cat", f"/shared/.toolkit/stop/{job.number}.0.json"))
    rows = _accounting(cluster, job.number)
    folder = f"{HOME}/runs/{job.number}/checkpoints"
    saves = cluster.run("find", folder, "-name", "COMMITTED", "-printf", "%T@\n").split()
    return Interruption(
        asked=request["at"] - noticed,
        saved=max(at for at in map(float, saves) if at < again) - noticed,
        ended=rows[0][1] - noticed,
        dead=rows[1][0] - rows[0][1],
        trains=again - noticed,
    )


def _accounting(cluster: Cluster, job: str) -> list[tuple[float, float]]:
    """Return the start and the end of each attempt.

    An attempt that has not ended ends at infinity.
    """
    columns = ("--duplicates", "--allocations", "--parsable2", "--noheader", "--format=Start,End")
    text = cluster.run("env", "SLURM_TIME_FORMAT=%s", "sacct", *columns, f"--jobs={job}")
    rows = [line.split("|") for line in text.splitlines()]
    ends = [(float(row[0]), float(row[1]) if row[1].isdigit() else float("inf")) for row in rows]
    return sorted(ends)
