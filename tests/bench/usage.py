"""A million attempts read, priced, allocated and reported, beside slurm2sql's parse alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import contest, usage_history

ATTEMPTS = 1_000_000
LIMIT = 3600.0
"""Seconds that a run may take, where no larger limit is told."""
STEPS = {
    "rebuild": "toolkit: read, priced, allocated, days closed, reported",
    "month": "toolkit: each closed month reported, one after another",
    "day": "toolkit: the last day's rows read, closed and reported",
}
PEER = "slurm2sql: parse alone"
AGES = {"a month": 30, "ten years": 3650}
"""Days of the stores whose last day is reported."""
NODES_OF_AGES = 4
"""Nodes of their clusters, which have about ninety attempts a day."""


_OURS = (sys.executable, "-m", "tests.bench.usage_run")


@dataclass(frozen=True)
class Run:
    """The figures of one process. `step_cpu` is what it took behind its start."""

    what: str
    wall: float
    cpu: float
    step_cpu: float
    peak_mb: float
    found: dict[str, Any]


def measure(attempts: int, limit: float, *, with_peer: bool = True) -> list[Run]:
    """Return a run of each step, and one of the peer.

    The generator is in no figure."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = usage_history.generate(folder, attempts)
        runs = [_run(what, [*_OURS, step, place], limit) for step, what in STEPS.items()]
        if with_peer:
            shutil.rmtree(folder / "store")
            peer = [contest.peer_python(), str(contest.HERE / "usage_peer.py")]
            columns = json.loads(_output([*peer, "columns"], limit))
            usage_history.write_for_peer(files, columns)
            runs.append(_run(PEER, [*peer, str(files.peer), f"{place}/peer.db"], limit))
    return runs


def measure_ages(limit: float) -> list[Run]:
    """Return a run of the last day's report for each age."""
    runs = []
    for age, days in AGES.items():
        with tempfile.TemporaryDirectory() as place:
            usage_history.generate(Path(place), 0, nodes=NODES_OF_AGES, days=days)
            _output([*_OURS, "rebuild", place], limit)
            what = f"toolkit: the last day's report, of a cluster of {age}"
            runs.append(_run(what, [*_OURS, "last-day", place], limit))
    return runs


def _run(what: str, argv: list[str], limit: float) -> Run:
    began = time.monotonic()
    found = json.loads(_output(argv, limit))
    wall = time.monotonic() - began
    cpu = found.pop("cpu")
    return Run(what, wall, cpu, found.pop("step_cpu", cpu), found.pop("peak_mb"), found)


def _output(argv: list[str], limit: float) -> str:
    done = subprocess.run(
        argv,
        cwd=contest.ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (contest.ROOT, *_extra_paths())))},
        capture_output=True,
        check=False,
        text=True,
        timeout=limit,
    )
    if done.returncode:
        raise RuntimeError(f"{argv} failed: {done.stderr[-2000:]}")
    return done.stdout


def _extra_paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
