"""Programs in the background: slurmctld kills its programs after a time, and waits for output."""

from __future__ import annotations

import os
import sys

_MAX_DESCRIPTOR = 1024
"""Descriptors below it are closed. slurmctld's pipes must not stay open in the child."""


def fork_to_background() -> bool:
    """Fork, and return True in the child, False in the caller.

    The caller should exit 0. The child has a session and a process group of its own, no terminal
    and no pipe to slurmctld. So neither slurmctld's time limit nor its end reaches the child.
    """
    if os.fork():
        return False
    os.setsid()
    os.chdir("/")
    os.umask(0o027)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, _MAX_DESCRIPTOR)
    return True


def fork_detached() -> bool:
    """Fork twice, and return True in the grandchild.

    It is no child of the caller's, which may then become another program.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    if not fork_to_background():
        os._exit(0)
    return True


def exit_without_cleanup(status: int) -> None:
    """Exit without Python's cleanup.

    The cleanup takes longer than the rest of the program.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
