"""Waits until slurmdbd answers: after its start it opens its database first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths

if TYPE_CHECKING:
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner

QUESTION: Final = (f"{paths.SLURM_BIN}/sacctmgr", "--noheader", "show", "cluster")
"""Exits with 0 only if slurmdbd and its database answer (sacctmgr(1))."""

ANSWER_SECONDS: Final = 20.0
_PAUSE: Final = 0.5  # seconds


def wait_for_answer(runner: Runner, clock: Clock, seconds: float) -> str:
    """Ask slurmdbd until it answers, at most for `seconds`.

    Returns nothing, or why slurmdbd did not answer. May be repeated.
    """
    end = clock.monotonic() + seconds
    while True:
        result = runner.run(QUESTION, timeout=ANSWER_SECONDS)
        if not result.returncode:
            return ""
        if clock.monotonic() >= end:
            return result.stderr.strip()[-300:] or f"sacctmgr: exit code {result.returncode}"
        clock.sleep(_PAUSE)
