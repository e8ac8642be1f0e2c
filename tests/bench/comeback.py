"""From EC2's notice to training again, on a real cluster that is up.

Each figure is a difference between two moments that somebody wrote down anyway: the node agent's
stop request, the checkpoint's commit, Slurm's accounting (whole seconds), the step log.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from toolkit.commands.local_options import control
from toolkit.config import load
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")
USER = "ada"
HOME = f"/shared/home/{USER}"
SCRIPTS = ("/shared/jobscripts/torchrun.sbatch", "/shared/jobscripts/digits/train.py")
STEPS_FIRST = 60
NOTICE = 120.0
PATIENCE = 240.0
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Comeback:
    """One interruption: seconds since the notice, but for `dead`, which is Slurm's own."""

    asked: float
    saved: float
    ended: float
    dead: float  # from the attempt's end to the next one's start, as sacct has them
    trains: float


def measure(config: Path, repeats: int = REPEATS) -> list[Comeback]:
    """Interrupt that many jobs of two nodes, one after the other."""
    found = load(config)
    head = Head(Clients(found), found)
    return [_once(head) for _ in range(repeats)]


def medians(runs: list[Comeback]) -> dict[str, float]:
    """Figure by figure."""
    return {
        name: round(statistics.median(getattr(run, name) for run in runs), 1)
        for name in Comeback.__slots__
    }


def _once(head: Head) -> Comeback:
    submit = ("sbatch", "--parsable", f"--chdir={HOME}", *SCRIPTS, "--epochs", "400")
    job = head.run(("runuser", "-u", USER, "--", *submit)).strip()
    try:
        _until(lambda: len(_lines(head, job, "steps.jsonl")) >= STEPS_FIRST)
        noticed = time.time()
        control(None).post("interrupt", {"target": _last_node(head, job), "notice": NOTICE})
        _until(lambda: any(step.get("attempt") == 1 for step in _lines(head, job, "steps.jsonl")))
        return _figures(head, job, noticed)
    finally:
        head.run(("scancel", job))


def _figures(head: Head, job: str, noticed: float) -> Comeback:
    request = json.loads(head.run(("cat", f"/shared/.toolkit/stop/{job}.0.json")))
    rows = _accounting(head, job)
    steps = _lines(head, job, "steps.jsonl")
    again = next(step["at"] for step in steps if step.get("attempt") == 1 and "samples" in step)
    find = ("find", f"{HOME}/runs/{job}/checkpoints", "-name", "COMMITTED", "-printf", "%T@\n")
    saves = [float(line) for line in head.run(find).split()]
    return Comeback(
        asked=request["at"] - noticed,
        saved=max(at for at in saves if at < again) - noticed,
        ended=rows[0][1] - noticed,
        dead=rows[1][0] - rows[0][1],
        trains=again - noticed,
    )


def _accounting(head: Head, job: str) -> list[tuple[float, float]]:
    """When each attempt started and ended; an end that isn't there yet is infinite."""
    columns = ("--duplicates", "--allocations", "--parsable2", "--noheader", "--format=Start,End")
    text = head.run(("env", "SLURM_TIME_FORMAT=%s", "sacct", *columns, f"--jobs={job}"))
    rows = [line.split("|") for line in text.splitlines()]
    ends = [(float(row[0]), float(row[1]) if row[1].isdigit() else float("inf")) for row in rows]
    return sorted(ends)


def _last_node(head: Head, job: str) -> str:
    nodes = json.loads(head.run(("scontrol", "show", "job", job, "--json")))["jobs"][0]["nodes"]
    return head.run(("scontrol", "show", "hostnames", nodes)).split()[-1]


def _lines(head: Head, job: str, name: str) -> list[dict[str, Any]]:
    path = f"{HOME}/runs/{job}/{name}"
    text = head.run(("sh", "-c", 'cat -- "$1" 2>/dev/null || true', "cat", path))
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _until(condition: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE:.0f} s; `toolkit status` says what is wrong")
        time.sleep(0.5)
    return found
