"""A million attempts read, priced, allocated and reported, beside slurm2sql's parse alone.

Then what the commands do on a cluster's records: days closed, closed months and days reported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tests.bench import contest, usage_history, usage_records

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING: Mapping[str, str] = MappingProxyType({})
ATTEMPTS = 1_000_000
LIMIT = 3600.0
"""Seconds that a run may take, where no larger limit is told."""
REBUILD = "a dump read; its instances priced, allocated, reported"
PEER = "slurm2sql: parse alone"
DAYS = 35
"""Days of the cluster whose records are read: a month, and then some.

The last day is an ordinary one. A closing on the first two of a month also keeps the month's sums.
"""
STEPS = {
    "close-month": f"close: {DAYS - 1} days of records read and closed",
    "report-month": "report: the closed month",
    "read-day": "close: the last day's records read, no day closed",
    "close-day": "close: the last day's records read, the day closed",
    "report-day": "report: the last day",
}
OLD = {
    "close-day": "close: the last day, of a cluster of ten years",
    "report-day": "report: the last day, of a cluster of ten years",
}


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
    """Return a run on a dump, and one of the peer.

    The generator is in no figure.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("TOOLKIT_BENCH_FOLDER")) as place:
        folder = Path(place)
        files = usage_history.generate(folder, attempts)
        runs = [_run(REBUILD, [*_OURS, "rebuild", place], limit)]
        if with_peer:
            shutil.rmtree(folder / "store")
            peer = [contest.peer_python(), str(contest.HERE / "usage_peer.py")]
            columns = json.loads(_output([*peer, "columns"], limit))
            usage_history.write_for_peer(files, columns)
            runs.append(_run(PEER, [*peer, str(files.peer), f"{place}/peer.db"], limit))
    return runs


def measure_commands(limit: float, *, nodes: int = usage_history.NODES) -> list[Run]:
    """Return a run of each command on a cluster's records.

    Their Python keeps compiled modules in a folder, as that of an installed toolkit does. The first
    run compiles them.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("TOOLKIT_BENCH_FOLDER")) as place:
        folder = Path(place)
        usage_records.write(usage_history.generate(folder, 0, nodes=nodes, days=DAYS), folder)
        compiled = {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }
        runs = [_run("close-month", [*_OURS, "close-month", place], limit, compiled)]
        _output([*_OURS, "report-month", place], limit, compiled)
        shutil.copytree(folder / "cluster", folder / "young")
        for step in ("report-month", "read-day", "close-day", "report-day"):
            runs.append(_run(step, [*_OURS, step, place], limit, compiled))
            if step == "read-day":
                _take_back(folder)  # the closing reads the same records
        named = [replace(run, what=STEPS[run.what]) for run in runs]
        _take_back(folder)
        _output([*_OURS, "old", place], limit)
        return named + [
            _run(what, [*_OURS, step, place], limit, compiled) for step, what in OLD.items()
        ]


def _take_back(folder: Path) -> None:
    """Make the cluster's store what it was before the last day."""
    shutil.rmtree(folder / "cluster")
    shutil.copytree(folder / "young", folder / "cluster")


def _run(what: str, argv: list[str], limit: float, environment: Mapping[str, str] = NOTHING) -> Run:
    began = time.monotonic()
    found = json.loads(_output(argv, limit, environment))
    wall = time.monotonic() - began
    cpu = found.pop("cpu")
    return Run(what, wall, cpu, found.pop("step_cpu", cpu), found.pop("peak_mb"), found)


def _output(argv: list[str], limit: float, environment: Mapping[str, str] = NOTHING) -> str:
    done = subprocess.run(
        argv,
        cwd=contest.ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(map(str, (contest.ROOT, *_extra_paths())))}
        | environment,
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
