"""Hold slurmctld back until slurmdbd answers, at most a minute.

slurmctld.service calls it (ExecStartPre). slurmctld up to 24.11.5 ends if slurmdbd first answers
after slurmctld's start (SchedMD's ticket 22385).
"""

from __future__ import annotations

from typing import Final

from slurmplugins.slurm.slurmdbd import wait_for_answer
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner

SECONDS: Final = 60.0


def main() -> None:
    """Wait at most a minute; exit with 1 without an answer."""
    if reason := wait_for_answer(SystemRunner(), SystemClock(), SECONDS):
        raise SystemExit(f"slurmdbd did not answer within {SECONDS:.0f} s: {reason}")


if __name__ == "__main__":
    main()
