"""Run a training script for some steps, then hold it.

held_training.py STEPS FILE SCRIPT [arguments…]

The script makes FILE after that many steps. Background saves continue while it is held.
"""

import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from toolkit.training import Run


def hold_after(steps: int, sign: Path) -> None:
    """Make the last of so many calls of Run.step never return."""
    step = Run.step
    taken = 0

    def held(run: Run, *args: Any, **metrics: Any) -> None:
        nonlocal taken
        step(run, *args, **metrics)
        taken += 1
        if taken == steps:
            sign.touch()
            while True:
                signal.pause()

    Run.step = held  # type: ignore[method-assign]  # in this process alone


def main() -> None:
    hold_after(int(sys.argv[1]), Path(sys.argv[2]))
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
