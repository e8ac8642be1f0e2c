"""List the array tasks that Slurm has: waiting, running, or to be requeued."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

TIMEOUT = 30
_TASK = re.compile(r"(\d+)_(\d+)")

Call = Callable[[Sequence[str]], str]


def queued_tasks(call: Call | None = None) -> frozenset[str] | None:
    """Return `<array job>_<task>` of every task in the queue.

    None when Slurm does not answer.
    """
    if call is None and shutil.which("squeue") is None:
        return None
    argv = ["squeue", "--all", "--noheader", "--array", "--format=%F_%K"]
    try:
        words = (call or _run)(argv).split()
    except (OSError, subprocess.SubprocessError):
        return None
    return frozenset(word for word in words if _TASK.fullmatch(word))


def _run(argv: Sequence[str]) -> str:
    process = subprocess.run(
        list(argv), capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    return process.stdout
