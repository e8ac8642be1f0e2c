"""Asks the head node for runs: MLflow has the list, the run's folder has the rest.

A run's tags name its folder, and any user can write any tag. Therefore files there are
read and run as the folder's owner, never as root.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.head.mlflow import Run
from toolkit.errors import HeadCommandFailed
from toolkit.runs.errors import FolderOfRoot, ReplayRefused, RunNotFound, RunsError, TrackingAway

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.head_runner import Runner

PROGRAM: Final = "/opt/slurm-toolkit/bin/slurm-runs"
PYTHON: Final = "/shared/env/bin/python"
LIBRARY: Final = "/shared/lib"
TIMEOUT: Final = 120.0
_AWAY, _REFUSED, _NO_RUN = 75, 1, 2


@dataclass(frozen=True, slots=True)
class Found:
    """A run: MLflow's part and its folder's part; one of them may be missing."""

    run: Run | None
    folder: dict[str, Any] | None

    @property
    def name(self) -> str:
        """Return a name for people."""
        if self.run:
            return self.run.name or self.run.run_id
        return str((self.folder or {}).get("run_dir", "?"))


def newest(runner: Runner, *, limit: int, running: bool) -> list[Run]:
    """Return the newest runs."""
    return _runs(runner, "list", f"--limit={limit}", *(["--running"] if running else []))


def find(runner: Runner, reference: str) -> Found:
    """Return the newest run that matches the reference.

    It may be a job's number, a run id, a name or a folder. Raises RunNotFound.
    """
    try:
        runs = _runs(runner, "find", "--", reference)
    except TrackingAway:
        if not reference.startswith("/"):
            raise
        runs = []
    run = runs[0] if runs else None
    place = run.tags.get("toolkit.run_dir", "") if run else reference
    folder = _folder(runner, place) if place.startswith("/") else None
    if run is None and folder is None:
        raise RunNotFound(
            f"no run is known by {reference!r}",
            next_step="`toolkit runs list` shows them; give a job's number, a run id or a folder",
        )
    return Found(run, folder)


def settle(runner: Runner, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Have the head node end the runs of ended jobs; return them.

    The head's timer does the same.
    """
    return _items(_ask(runner, "settle", *(["--dry-run"] if dry_run else [])))


def tag(runner: Runner, jobs: Mapping[str, Mapping[str, str]]) -> int:
    """Set tags on every run of each job; return how many runs.

    A job without a run is ignored.
    """
    return len(_items(_ask(runner, "tag", json.dumps(jobs))))


def replay(runner: Runner, found: Found, flags: Sequence[str]) -> dict[str, Any]:
    """Have the folder's owner submit the run again; return the submission.

    Raises ReplayRefused.
    """
    if found.folder is None:
        raise RunNotFound(f"{found.name}: no folder of a user's, and the submission is kept there")
    place = str(found.folder["run_dir"])
    try:
        answer = _as_owner(runner, place, "replay", place, *flags)
    except HeadCommandFailed as error:
        if error.returncode == _NO_RUN:
            raise ReplayRefused(error.stderr.strip()[-500:]) from error
        if error.returncode != _REFUSED or not error.stdout.startswith("{"):
            raise
        reasons = _refusal(_object(error.stdout))
        raise ReplayRefused(
            f"{found.name}: {'; '.join(reasons)}",
            next_step="--rebuild FOLDER makes the code of then; --anyway accepts what differs",
        ) from error
    return _object(answer)


def _refusal(answer: dict[str, Any]) -> list[str]:
    return [str(reason) for reason in [*answer["missing"], *answer["differs"]]]


def _folder(runner: Runner, place: str) -> dict[str, Any] | None:
    """Return the summary of a run's folder.

    None when it is gone, root's, or can't be read.
    """
    try:
        return _object(_as_owner(runner, place, "summary", place))
    except (HeadCommandFailed, FolderOfRoot):
        return None


def _as_owner(runner: Runner, place: str, command: str, *words: str) -> str:
    owner, number = runner.run(["stat", "--format=%U %u", "--", place]).split()
    if number == "0":
        raise FolderOfRoot(f"{place} belongs to root, as whom nothing of a run is read or started")
    argv = [
        *(
            "runuser",
            "-u",
            owner,
            "--",
            "env",
            f"PYTHONPATH={LIBRARY}",
        ),
        *(PYTHON, "-m", "toolkit.training", command, *words),
    ]
    return runner.run(argv, timeout=TIMEOUT)


def _runs(runner: Runner, *words: str) -> list[Run]:
    try:
        return [Run(**item) for item in _items(_ask(runner, *words))]
    except TypeError as error:
        raise RunsError(f"{PROGRAM} knows other runs than this toolkit: {error}") from error


def _ask(runner: Runner, *words: str) -> str:
    try:
        return runner.run([PROGRAM, *words], timeout=TIMEOUT)
    except HeadCommandFailed as error:
        if error.returncode != _AWAY:
            raise
        raise TrackingAway(
            error.stderr.strip()[-300:],
            next_step="`toolkit run -- systemctl status mlflow` says more",
        ) from error


def _items(answer: str) -> list[dict[str, Any]]:
    try:
        return [dict(item) for item in json.loads(answer)]
    except (ValueError, TypeError) as error:
        raise RunsError(f"{PROGRAM}: the answer makes no sense: {answer[:200]!r}") from error


def _object(answer: str) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise RunsError(f"the answer makes no sense: {answer[:200]!r}") from error
    if not isinstance(found, dict):
        raise RunsError(f"the answer is no object: {answer[:200]!r}")
    return found
