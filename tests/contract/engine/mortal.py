"""One run of one of the engine's programs, in a process that kills itself at a chosen boundary.

mortal.py STATE_DIR WORLD PROGRAM STEP [torn]

The world (the fake cloud and the fake slurmctld) is a file, written after each call that changed
it and before the step at which the process may die: it outlives the process as EC2 does. Prints
the boundaries passed. `torn` leaves half a line in the journal, as a write cut short does.
"""

# ruff: noqa: E402 - a script has to find the repository before it imports from it
from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from slurmplugins import bursting, reconcile
from slurmplugins.model import EndCause
from tests.fakes.boundaries import watch
from tests.fakes.engine import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.runtime import Engine


def programs(bench: Bench) -> dict[str, Callable[[Engine], None]]:
    """Each as its entry point calls it, with what Slurm asks for at this moment."""
    slurm = bench.slurm
    return {
        "resume": lambda engine: bursting.resume(engine, slurm.asks()),
        "suspend": lambda engine: bursting.suspend(engine, slurm.suspended, EndCause.SUSPEND),
        "resume_fail": lambda engine: bursting.suspend(
            engine, slurm.resume_failed, EndCause.RESUME_FAILED
        ),
        "reconcile": reconcile.run,
    }


class Scythe:
    """Counts the steps, keeps the world on disk, and at one step ends the process for good."""

    def __init__(self, bench: Bench, world: Path, fatal: int, *, torn: bool) -> None:
        self._bench, self._world, self._fatal, self._torn = bench, world, fatal, torn
        self._lock = threading.Lock()
        self._passed = 0

    def __call__(self, place: str) -> None:
        with self._lock:
            if place.endswith("done"):
                self._bench.save(self._world)
            if self._passed == self._fatal:
                if self._torn:
                    with (self._bench.engine.state / "journal.jsonl").open("a") as journal:
                        journal.write('{"at":1795000000.0,"kind":"intent","attempt":"ab')
                os.kill(os.getpid(), signal.SIGKILL)
            self._passed += 1
            sys.stdout.write(f"{place}\n")
            sys.stdout.flush()


def main() -> None:
    state, world, program, fatal = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    bench = Bench(state)
    bench.load(world)
    run = programs(bench)[program]
    run(watch(bench.engine, Scythe(bench, world, int(fatal), torn="torn" in sys.argv)))
    bench.save(world)


if __name__ == "__main__":
    main()
