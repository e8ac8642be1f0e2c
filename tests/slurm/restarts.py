"""Commands that go on beside a restart of slurmctld, which the other lane's tests make.

A command tries again while slurmctld does not listen. At its end slurmctld drops connections that
it has not accepted, and their commands fail.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from tests.slurm.waiting import PAUSE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

HAS_OTHER_LANE = "PYTEST_XDIST_WORKER" in os.environ
"""Whether the other lane may restart slurmctld. A file that runs alone fails at a refused key."""

DROPPED = ("Connection reset by peer", "Protocol authentication error")
UNREACHED = ("Unable to contact slurm controller", *(DROPPED if HAS_OTHER_LANE else ()))
"""Slurm's words for no answer of a slurmctld that ends or starts."""

REPEATABLE = frozenset({"sbatch", "scancel", "scontrol", "sinfo", "squeue"})
"""Commands of Slurm that may be repeated after no answer."""

READS = frozenset(
    {
        ("budget", "status"),
        ("burst", "status"),
        ("quote",),
        ("reconcile",),
        ("report",),
        ("runs", "list"),
        ("status",),
        ("why",),
    }
)
"""Commands of the CLI that change nothing; `reconcile` with --plan, as the tests call it."""


def is_unreached(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether slurmctld gave the command no answer.

    The command may be repeated: such a submission left no job (measured: docs/testing.md).
    `scontrol show job --json` exits 0 without an answer. SIGPIPE ends it if slurmctld closes the
    connection first.
    """
    output = done.stdout + done.stderr if done.returncode else done.stderr
    return done.returncode == -signal.SIGPIPE or any(words in output for words in UNREACHED)


def call_until_answered(
    call: Callable[[], subprocess.CompletedProcess[str]],
) -> subprocess.CompletedProcess[str]:
    """Call each second until slurmctld answers, for two minutes at most."""
    deadline = time.monotonic() + 120
    while is_unreached(done := call()) and time.monotonic() < deadline:
        time.sleep(PAUSE)
    return done
