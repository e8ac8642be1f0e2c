"""A run that stays on the racks, and one that moves between the racks and the cloud.

python move_run.py ROOT

Racks and cloud have a filesystem each, ROOT/racks and ROOT/cloud. S3 is all that both reach. Each
attempt is a process forked from this one, which has done the slow imports.
"""

import os
import signal
import sys
import time
from pathlib import Path

import boto3
import forked_attempt

from tests.fakes import service_models

SCRIPT = Path(__file__).with_name("moving_train.py")
MOVES = (
    ("racks", "stop", 40), ("cloud", "kill", 50), ("cloud", "stop", 30), ("racks", "kill", 60),
    ("cloud", "stop", 25), ("racks", "", 0),
)  # fmt: skip
"""Each attempt's filesystem, its end, and how many of its steps come before that."""


def start(root: Path, place: str, job: str, restart: int) -> int:
    environment = {
        "SLURM_JOB_ID": job,
        "SLURM_RESTART_COUNT": str(restart),
        "TOOLKIT_RUN_DIR": str(root / place / job),
        "TOOLKIT_STOP_DIR": str(root / place / "stop"),
        "MOVING_RUN": f"ada/{job}",
    }
    return forked_attempt.start([str(SCRIPT)], environment)


def steps(folder: Path) -> int:
    path = folder / "steps.jsonl"
    return path.read_bytes().count(b'"event": "step"') if path.exists() else 0


def move(root: Path, restart: int, place: str, end: str, count: int) -> None:
    folder = root / place / "2"
    wanted_steps = steps(folder) + count
    child = start(root, place, "2", restart)
    while end and steps(folder) < wanted_steps:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            raise SystemExit(f"attempt {restart} ended by itself")
        time.sleep(0.002)
    if end == "kill":
        os.kill(child, signal.SIGKILL)
    elif end == "stop":
        (root / place / "stop").mkdir(parents=True, exist_ok=True)
        (root / place / "stop" / f"2.{restart}.json").write_text('{"cause": "preemption"}')
    os.waitpid(child, 0)


def main() -> None:
    root = Path(sys.argv[1])
    service_models.share()
    boto3.client("s3")  # its models are read once for all attempts
    os.waitpid(start(root, "racks", "1", 0), 0)
    for restart, (place, end, count) in enumerate(MOVES):
        move(root, restart, place, end, count)


if __name__ == "__main__":
    main()
