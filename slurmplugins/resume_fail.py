"""ResumeFailProgram: these nodes did not come up within ResumeTimeout; their machines end.

Slurm has set them down and powered down and requeued their jobs; reconcile lets Slurm use them
again once the machines are gone.
"""

from __future__ import annotations

import sys

from slurmplugins.suspend import end_machines


def main() -> None:
    end_machines("resume-fail", sys.argv[1] if len(sys.argv) > 1 else "", "boot-failed")


if __name__ == "__main__":
    main()
