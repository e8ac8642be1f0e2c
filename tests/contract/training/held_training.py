"""Run a training script up to a number of steps, then let it wait to be killed.

held_training.py STEPS FILE SCRIPT [arguments…]

FILE is made once that many steps are taken. Saves in the background go on while the script waits.
"""

import runpy
import signal
import sys
from pathlib import Path
from typing import Any

from toolkit.training import Run


def hold_after(steps: int, sign: Path) -> None:
    """Have the call of Run.step with that number never return."""
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

    Run.step = held  # type: ignore[method-assign]  # this process alone


def main() -> None:
    hold_after(int(sys.argv[1]), Path(sys.argv[2]))
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
