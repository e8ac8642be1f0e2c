"""Asks the head node for runs: MLflow has the list, the run's folder has the rest.

A run's tags name its folder, and any user can write any tag. Therefore files there are
read and run as the folder's owner, never as root.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.head.mlflow import MlflowRun
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import TRAINING_PROGRAM
from toolkit.runs.errors import FolderOfRoot, ReplayRefused, RunNotFound, RunsError, TrackingAway

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.head_runner import Runner

PROGRAM: Final = "/opt/slurm-toolkit/bin/slurm-runs"
TIMEOUT: Final = 120.0
_EXIT_TRACKING_AWAY, _EXIT_REFUSED, _EXIT_NO_RUN = 75, 1, 2


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run: MLflow's part and its folder's part; one of them may be missing."""

    run: MlflowRun | None
    folder: dict[str, Any] | None

    @property
    def name(self) -> str:
        """Return a name for people."""
        if self.run:
            return self.run.name or self.run.run_id
        return str((self.folder or {}).get("run_dir", "?"))


def newest_runs(runner: Runner, *, limit: int, running: bool) -> list[MlflowRun]:
    """Return the newest runs."""
    return _query_runs(runner, "list", f"--limit={limit}", *(["--running"] if running else []))


def find_run(runner: Runner, reference: str) -> FoundRun:
    """Return the newest run that matches the reference.

    It may be a job's number, a run id, a name or a folder. Raises RunNotFound.
    """
    try:
        runs = _query_runs(runner, "find", "--", reference)
    except TrackingAway:
        if not reference.startswith("/"):
            raise
        runs = []
    run = runs[0] if runs else None
    run_folder = run.tags.get("toolkit.run_dir", "") if run else reference
    folder = _folder_summary(runner, run_folder) if run_folder.startswith("/") else None
    if run is None and folder is None:
        raise RunNotFound(
            f"no run has the job id, run id, name or folder {reference!r}",
            next_step="`toolkit runs list` shows the runs",
        )
    return FoundRun(run, folder)


def end_mlflow_runs(runner: Runner, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Have the head node end the runs of ended jobs; return them.

    The head's timer does the same.
    """
    return _parse_list(_run_program(runner, "settle", *(["--dry-run"] if dry_run else [])))


def tag_runs(runner: Runner, jobs: Mapping[str, Mapping[str, str]]) -> int:
    """Set tags on every run of each job; return how many runs.

    A job without a run is ignored.
    """
    return len(_parse_list(_run_program(runner, "tag", json.dumps(jobs))))


def replay_run(runner: Runner, found_run: FoundRun, flags: Sequence[str]) -> dict[str, Any]:
    """Have the folder's owner submit the run again; return the submission.

    Raises ReplayRefused.
    """
    if found_run.folder is None:
        raise RunNotFound(f"{found_run.name}: the run folder with its submission can't be read")
    run_folder = str(found_run.folder["run_dir"])
    try:
        answer = _run_as_owner(runner, run_folder, "replay", run_folder, *flags)
    except HeadCommandFailed as error:
        if error.returncode == _EXIT_NO_RUN:
            raise ReplayRefused(error.stderr.strip()[-500:]) from error
        if error.returncode != _EXIT_REFUSED or not error.stdout.startswith("{"):
            raise
        reasons = _refusal_reasons(_parse_object(error.stdout))
        raise ReplayRefused(
            f"{found_run.name}: {'; '.join(reasons)}",
            next_step="--rebuild FOLDER restores the run's code; --anyway accepts the differences",
        ) from error
    return _parse_object(answer)


def _refusal_reasons(answer: dict[str, Any]) -> list[str]:
    return [str(reason) for reason in [*answer["missing"], *answer["differs"]]]


def _folder_summary(runner: Runner, run_folder: str) -> dict[str, Any] | None:
    """Return the summary of a run's folder.

    None if it can't be read, or belongs to root.
    """
    try:
        return _parse_object(_run_as_owner(runner, run_folder, "summary", run_folder))
    except (HeadCommandFailed, FolderOfRoot):
        return None


def _run_as_owner(runner: Runner, run_folder: str, command: str, *arguments: str) -> str:
    owner, number = runner.run(["stat", "--format=%U %u", "--", run_folder]).split()
    if number == "0":
        raise FolderOfRoot(f"{run_folder} belongs to root; runs are read only as an ordinary user")
    argv = ["runuser", "-u", owner, "--", *TRAINING_PROGRAM, command, *arguments]
    return runner.run(argv, timeout=TIMEOUT)


def _query_runs(runner: Runner, *arguments: str) -> list[MlflowRun]:
    try:
        return [MlflowRun(**item) for item in _parse_list(_run_program(runner, *arguments))]
    except TypeError as error:
        raise RunsError(f"{PROGRAM} is of another version than this toolkit: {error}") from error


def _run_program(runner: Runner, *arguments: str) -> str:
    try:
        return runner.run([PROGRAM, *arguments], timeout=TIMEOUT)
    except HeadCommandFailed as error:
        if error.returncode != _EXIT_TRACKING_AWAY:
            raise
        raise TrackingAway(
            error.stderr.strip()[-300:],
            next_step="`toolkit run -- systemctl status mlflow` says more",
        ) from error


def _parse_list(answer: str) -> list[dict[str, Any]]:
    try:
        return [dict(item) for item in json.loads(answer)]
    except (ValueError, TypeError) as error:
        raise RunsError(f"{PROGRAM} did not answer with a list: {answer[:200]!r}") from error


def _parse_object(answer: str) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError as error:
        raise RunsError(f"the head node's answer is not JSON: {answer[:200]!r}") from error
    if not isinstance(value, dict):
        raise RunsError(f"the head node's answer is not an object: {answer[:200]!r}")
    return value
