#!/usr/bin/python3 -I
"""Restart UNIT if its process began before one of the FILEs was written.

A playbook that fails between its files and its handlers leaves such a daemon. The next run finds
nothing to write, and would notify no handler. Prints `changed` or `unchanged`. Files that are
absent don't count. A unit that does not run stays as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEMCTL = "/usr/bin/systemctl"
START_FIELD = 19  # of those after the name: starttime, in ticks since the boot (proc_pid_stat(5))


def main(arguments: list[str]) -> int:
    """Restart the unit if needed, and print whether it was."""
    unit, *files = arguments
    pid = process(unit)
    if not pid or began(pid) > newest(Path(file) for file in files):
        print("unchanged")
        return 0
    subprocess.run([SYSTEMCTL, "restart", unit], check=True)
    print("changed")
    return 0


def process(unit: str) -> int:
    """Return the unit's main process, or 0."""
    argv = [SYSTEMCTL, "show", "--property=MainPID", "--value", unit]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def began(pid: int) -> float:
    """Return when the process began, in seconds since the epoch."""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    seconds = int(after_name.split()[START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + seconds


def newest(files: Iterable[Path]) -> float:
    """Return when the newest file was written; 0 without any."""
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
