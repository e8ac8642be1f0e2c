"""Leave the caller: slurmctld ends its programs after a while and waits for their output."""

from __future__ import annotations

import os
import sys

_INHERITED = 1024
"""slurmctld's descriptors, its pipes above all, must not stay open in the work that goes on."""


def in_background() -> bool:
    """Fork. False in the caller, which should exit 0; True in the child, a session of its own.

    The child has no terminal, no pipe to slurmctld and no controlling process group, so neither
    slurmctld's time limit nor its end reaches it.
    """
    if os.fork():
        return False
    os.setsid()
    os.chdir("/")
    os.umask(0o027)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, _INHERITED)
    return True


def leave(status: int) -> None:
    """Exit without what Python does at its end, which takes longer than all that went before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
