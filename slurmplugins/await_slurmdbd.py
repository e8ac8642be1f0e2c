"""Hold slurmdbd's unit in its start until slurmdbd answers.

slurmdbd.service calls it (ExecStartPost), so that slurmctld, which begins after it, has answers.
slurmctld up to 24.11.5 ends otherwise, when the first comes (SchedMD's ticket 22385).
"""

from __future__ import annotations

from typing import Final

from slurmplugins.slurm.slurmdbd import wait_for_answer
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner

SECONDS: Final = 60.0
"""Less than systemd's limit of a start, 90 s. A slurmdbd that upgrades its database takes longer;
systemd must not end it for that."""


def main() -> None:
    """Wait at most a minute; exit with 1 without an answer."""
    if reason := wait_for_answer(SystemRunner(), SystemClock(), SECONDS):
        raise SystemExit(f"slurmdbd did not answer within {SECONDS:.0f} s: {reason}")


if __name__ == "__main__":
    main()
