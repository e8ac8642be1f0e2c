"""A training script on a few gloo ranks, undisturbed and disturbed.

python interrupt_ranks.py ROOT TRAIN.PY MODULE[,MODULE…] [arguments…]

Each rank of each attempt is a process forked from this one, which has done the slow imports.

- Job 1 is undisturbed.
- Job 2 gets stop requests, each as early as possible, so that it stops at each place of an epoch.
  Then it is killed, a bit of its newest checkpoint is flipped, and the last attempt finishes.
- Job 3 goes from two ranks to one and to three.
"""

import importlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

import forked_attempt

RANKS = 2
STOPS = 4
MORE = 11  # steps before the kill, in which two checkpoints are committed


def start(root: Path, job: str, restart: int, ranks: int = RANKS) -> list[int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    return [_fork(root, job, restart, rank, place) for rank in range(ranks)]


def _fork(root: Path, job: str, restart: int, rank: int, place: dict[str, str]) -> int:
    return forked_attempt.start(
        [sys.argv[2], *sys.argv[4:]],
        {
            "SLURM_JOB_ID": job,
            "SLURM_RESTART_COUNT": str(restart),
            "TOOLKIT_RUN_DIR": str(root / job),
            "TOOLKIT_STOP_DIR": str(root / "stop"),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": place["WORLD_SIZE"],
            "GROUP_RANK": "0",
            "TORCHELASTIC_RUN_ID": job,
            **place,
        },
    )


def end(ranks: list[int], *, kill: bool = False) -> None:
    for pid in ranks:
        if kill:
            os.kill(pid, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    if not kill and any(codes):
        raise SystemExit(f"the ranks ended with {codes}")


def steps(root: Path, job: str) -> int:
    path = root / job / "steps.jsonl"
    return path.read_bytes().count(b'"event": "step"') if path.exists() else 0


def wait_for(root: Path, job: str, wanted: int, ranks: list[int]) -> None:
    while steps(root, job) < wanted:
        if os.waitpid(ranks[0], os.WNOHANG) != (0, 0):
            raise SystemExit("an attempt that was to be disturbed ended by itself")
        time.sleep(0.002)


def request(root: Path, job: str, restart: int) -> None:
    (root / "stop" / f"{job}.{restart}.json").write_text('{"cause": "spot-interruption"}')


def asked_to_stop(root: Path, restart: int) -> None:
    # Two attempts of three find the request waiting, and stop where they first look for it. If all
    # did, each would stop in the same evaluation.
    waiting = restart % 3 < 2
    if waiting:
        request(root, "2", restart)
    ranks = start(root, "2", restart)
    if not waiting:
        wait_for(root, "2", steps(root, "2") + 1, ranks)
        request(root, "2", restart)
    end(ranks)


def killed_on_its_way(root: Path, restart: int) -> None:
    before = steps(root, "2")
    ranks = start(root, "2", restart)
    wait_for(root, "2", before + MORE, ranks)
    end(ranks, kill=True)


def flip_a_bit(checkpoints: Path) -> None:
    newest = max(checkpoints.glob("*/COMMITTED"), key=lambda path: path.parent.suffix).parent
    with (newest / "shared.pt").open("r+b") as stream:
        stream.seek(newest.joinpath("shared.pt").stat().st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))


def main() -> None:
    root = Path(sys.argv[1])
    for name in sys.argv[3].split(","):
        importlib.import_module(name)
    end(start(root, "1", 0))
    (root / "stop").mkdir()
    for restart in range(STOPS):
        asked_to_stop(root, restart)
    killed_on_its_way(root, STOPS)
    flip_a_bit(root / "2" / "checkpoints")
    end(start(root, "2", STOPS + 1))
    for restart, size in enumerate((2, 1)):
        request(root, "3", restart)
        end(start(root, "3", restart, size))
    ranks = start(root, "3", 2, 3)
    wait_for(root, "3", steps(root, "3") + 1, ranks)
    request(root, "3", 2)
    end(ranks)


if __name__ == "__main__":
    main()
