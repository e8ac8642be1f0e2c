"""Print all nodes with state, reason and version: `head_nodes`, for `toolkit status`.

The output is pyslurm's where pyslurm can be used, and else that of `scontrol show nodes --json`. It
changes nothing.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> None:
    if sys.argv[1:]:
        sys.exit("usage: head_nodes")
    # Where pyslurm is not installed, this program costs next to nothing: it imports no more.
    if find_spec("pyslurm") is None or not print_pyslurms_nodes():
        argv = ("scontrol", "show", "nodes", "--json")
        os.execvp(argv[0], argv)  # noqa: S606 - argv, no shell


def print_pyslurms_nodes() -> bool:
    """Return whether pyslurm had an answer that can be used.

    Raises SystemExit if slurmctld does not answer.
    """
    from slurmplugins.errors import SlurmUnreachable
    from slurmplugins.slurm.node_reader import PyslurmUnused, ask_pyslurm
    from slurmplugins.system.command import SystemRunner

    try:
        sys.stdout.write(ask_pyslurm(SystemRunner()))
    except PyslurmUnused:
        return False
    except SlurmUnreachable as error:
        sys.exit(error.message)
    return True


if __name__ == "__main__":
    main()
