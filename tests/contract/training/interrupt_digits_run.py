"""The digits run, undisturbed and interrupted eight times.

python interrupt_digits_run.py ROOT TRAIN.PY [arguments…]

Interruption notice and SIGKILL take turns. Each attempt is a process forked from this one, which
has done the slow imports.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import forked_attempt
import sklearn.datasets  # noqa: F401  # for the attempts

TIMES = 8


def attempt(root: Path, name: str, restart: int) -> int:
    return forked_attempt.start(
        sys.argv[2:],
        {
            "SLURM_JOB_ID": name,
            "SLURM_RESTART_COUNT": str(restart),
            "TOOLKIT_RUN_DIR": str(root / name),
            "TOOLKIT_STOP_DIR": str(root / "stop"),
        },
    )


def steps(root: Path, name: str) -> int:
    path = root / name / "steps.jsonl"
    return path.read_bytes().count(b'"event": "step"') if path.exists() else 0


def disturb(root: Path, restart: int, draw: random.Random) -> None:
    child = attempt(root, "2", restart)
    wanted = steps(root, "2") + draw.randint(2, 15)
    while steps(root, "2") < wanted:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            raise SystemExit(f"attempt {restart} ended by itself")
        time.sleep(0.002)
    if restart % 2:
        os.kill(child, signal.SIGKILL)
    else:
        (root / "stop").mkdir(exist_ok=True)
        (root / "stop" / f"2.{restart}.json").write_text('{"cause": "spot-interruption"}')
    os.waitpid(child, 0)


def main() -> None:
    root = Path(sys.argv[1])
    os.waitpid(attempt(root, "1", 0), 0)
    draw = random.Random(7)  # noqa: S311  # the same places every time
    for restart in range(TIMES):
        disturb(root, restart, draw)
    os.waitpid(attempt(root, "2", TIMES), 0)


if __name__ == "__main__":
    main()
