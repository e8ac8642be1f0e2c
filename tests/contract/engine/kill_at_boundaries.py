"""Run an engine program repeatedly, killed one boundary later each time.

kill_at_boundaries.py STATE_DIR PROGRAM OUT_DIR

STATE_DIR is a state directory with a further file, which has the fake cloud and the fake slurmctld.
Each run has a copy of it and a process of its own, which sends itself SIGKILL at its boundary. The
cluster is written after each call that changed it, so it outlives the process as EC2 does.

At a journal boundary, a second run leaves half a line in the journal, as an interrupted write does.
The script prints a line of JSON for each run, and ends when a run survives.
"""

# ruff: noqa: E402 - a script has to find the repository before it imports from it
from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from slurmplugins.launch import batching
from slurmplugins.model.instance import EndCause
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from tests.fakes.boundaries import watch
from tests.fakes.engine import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.execution.engine import Engine

CLUSTER_FILE = "cluster.pickle"
PLACE = "place"
HALF_A_LINE = '{"at":1795000000.0,"kind":"intent","attempt":"ab'


def programs(bench: Bench) -> dict[str, Callable[[Engine], None]]:
    """Return each program by name, as its entry point calls it.

    The programs get the nodes that Slurm wants at that moment.
    """
    slurm = bench.slurm

    def in_parts(engine: Engine) -> None:
        """Run resume with batches so small that larger jobs are split."""
        sizes = {"MAX_SHARED_BATCH": 2, "MAX_JOB_BATCH": 2}
        with mock.patch.multiple(batching, **sizes):
            resume(engine, slurm.asks())

    return {
        "resume": lambda engine: resume(engine, slurm.asks()),
        "resume_in_parts": in_parts,
        "suspend": lambda engine: suspend(engine, slurm.suspended, EndCause.SUSPEND),
        "resume_fail": lambda engine: suspend(engine, slurm.resume_failed, EndCause.RESUME_FAILED),
        "reconcile": run_pass,
    }


class BoundaryKiller:
    """Counts the steps, and kills the process at one of them.

    The cluster on disk is kept up to date before each step.
    """

    def __init__(self, bench: Bench, fatal: int, *, torn: bool) -> None:
        self._bench, self._fatal, self._torn = bench, fatal, torn
        self._state = bench.engine.state
        self._lock = threading.Lock()
        self._passed = 0

    def __call__(self, place: str) -> None:
        with self._lock:
            if place.endswith("done"):
                self._bench.save(self._state / CLUSTER_FILE)
            if self._passed == self._fatal:
                self._die(place)
            self._passed += 1

    def _die(self, place: str) -> None:
        (self._state / PLACE).write_text(place)
        if self._torn:
            with (self._state / "journal.jsonl").open("a") as journal:
                journal.write(HALF_A_LINE)
        os.kill(os.getpid(), signal.SIGKILL)


def run_until_boundary(state: Path, program: str, fatal: int, *, torn: bool) -> None:
    bench = Bench(state)
    bench.load(state / CLUSTER_FILE)
    programs(bench)[program](watch(bench.engine, BoundaryKiller(bench, fatal, torn=torn)))
    bench.save(state / CLUSTER_FILE)


def run_killed(template: Path, program: str, state: Path, fatal: int, *, torn: bool) -> int:
    """Run the program once in a process of its own.

    Returns its exit status, or minus the signal that killed it.
    """
    shutil.copytree(template, state)
    child = os.fork()
    if not child:
        try:
            run_until_boundary(state, program, fatal, torn=torn)
        except BaseException:  # noqa: BLE001 - the child must end here, and say why
            traceback.print_exc()
            os._exit(70)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    template, program, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    for step in itertools.count():
        for torn in (False, True):
            state = out / f"{step}{'-torn' if torn else ''}"
            status = run_killed(template, program, state, step, torn=torn)
            place = state / PLACE
            where = place.read_text() if place.exists() else ""
            sys.stdout.write(json.dumps({"state": str(state), "at": where, "status": status}))
            sys.stdout.write("\n")
            if status != -signal.SIGKILL:
                return
            if not where.startswith("journal."):
                break


if __name__ == "__main__":
    main()
