"""ResumeFailProgram: terminate the instances of nodes that did not come up within ResumeTimeout.

Slurm has set the nodes DOWN, powered them down and requeued their jobs. reconcile returns them to
service once the instances are gone.
"""

from __future__ import annotations

import sys

from slurmplugins.suspend import terminate_instances


def main() -> None:
    terminate_instances("resume-fail", sys.argv[1:], "boot-failed")


if __name__ == "__main__":
    main()
