"""Asks for sweeps and starts them on the head node.

Optuna is in the training environment, so its part runs there as `nobody`, which reads
every sweep. To change one, it runs as `optuna`, the storage's own user. A sweep is started as its
user, never as root.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import TRAINING_PROGRAM, user_words
from toolkit.runs.errors import RunsError, SweepNotFound, TrackingAway
from toolkit.runs.queries import TIMEOUT

if TYPE_CHECKING:
    from toolkit.head_runner import Runner

SCRIPT: Final = "/shared/jobscripts/sweep.sbatch"
_EXIT_NO_SWEEP, _EXIT_NO_STORAGE = 2, 3


@dataclass(frozen=True, slots=True)
class SweepStart:
    """A sweep to start, as a job array."""

    name: str
    user: str
    trials: int  # tasks of the array
    at_once: int  # tasks at a time; 0: no limit
    options: tuple[str, ...]  # more options for sbatch
    script: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartedSweep:
    """The call of a started sweep."""

    argv: tuple[str, ...]
    job_id: str  # of the array; "" when nothing was submitted


def sweep_status(
    runner: Runner, name: str, *, count: int = 5, fail_missing: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """Return the state of a sweep.

    With `fail_missing`, trials whose array tasks have ended are marked failed.
    """
    flags = [*(["--settle"] if fail_missing else []), *(["--dry-run"] if dry_run else [])]
    user = "optuna" if fail_missing and not dry_run else "nobody"
    argv = [
        *("runuser", "-u", user, "--", *TRAINING_PROGRAM),
        *("sweep-status", f"--best={count}", *flags, "--", name),
    ]
    try:
        answer = runner.run(argv, timeout=TIMEOUT)
    except HeadCommandFailed as error:
        raise _status_error(error, name) or error from error
    try:
        status = json.loads(answer)
    except ValueError as error:
        raise RunsError(f"the head node's answer is not JSON: {answer[:200]!r}") from error
    return dict(status)


def start_command(start: SweepStart, as_user: tuple[str, ...]) -> tuple[str, ...]:
    """Return the call that starts a sweep, with the user's words first."""
    limit = f"%{start.at_once}" if start.at_once else ""
    return (
        *(*as_user, f"TOOLKIT_SWEEP={start.name}"),
        *("sbatch", "--parsable", f"--array=0-{start.trials - 1}{limit}"),
        f"--job-name={start.name}",
        *start.options,
        *(SCRIPT, start.script, *start.arguments),
    )


def submit_sweep(runner: Runner, start: SweepStart, *, dry_run: bool) -> StartedSweep:
    """Submit the array.

    Raises HeadCommandFailed with sbatch's message if it refuses, and UnknownUserError.
    """
    argv = start_command(start, user_words(runner, start.user))
    if dry_run:
        return StartedSweep(argv, "")
    return StartedSweep(argv, runner.run(list(argv)).strip().partition(";")[0])


def _status_error(error: HeadCommandFailed, name: str) -> RunsError | None:
    if error.returncode == _EXIT_NO_SWEEP:
        return SweepNotFound(
            f"no sweep is called {name!r}",
            next_step="the first task to start makes it; `toolkit jobs` shows the tasks",
        )
    if error.returncode == _EXIT_NO_STORAGE:
        return TrackingAway(
            error.stderr.strip()[-300:],
            next_step="`toolkit run -- systemctl status optuna` says more",
        )
    return None
