"""Gather the facts that judge and repeat a run, when an attempt begins."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import write_atomic
from toolkit.training.reproduce import installed_packages, submission
from toolkit.training.reproduce.git_commit import code_of
from toolkit.training.run_folder.run_folder import RunFolder

# Set by the submitter of the job or by the batch script, and recorded as they are.
_STATED_TAGS = {
    "toolkit.container": "TOOLKIT_CONTAINER_DIGEST",
    "toolkit.dataset": "TOOLKIT_DATASET",
    "toolkit.sweep": "TOOLKIT_SWEEP",
    "toolkit.replay_of": "TOOLKIT_REPLAY_OF",
}
_NAME_DIGITS = 12


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts about a run."""

    tags: Mapping[str, str]  # for the tracking server
    artifacts: tuple[Path, ...]  # files for the tracking server that are new


def gather(
    attempt: Attempt,
    run_folder: RunFolder,
    *,
    seed: int,
    script: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> RunFacts:
    """Inspect the code, the packages and the submission.

    Facts that may change are written to the run's folder. `script` is this program's own unless
    another is named.
    """
    code = code_of(script or Path(sys.argv[0]).resolve(), environment)
    patch = f"code-{code.patch_sha256[:_NAME_DIGITS]}.patch" if code.patch else ""
    packages = installed_packages.text()
    lock = installed_packages.digest(packages)
    listing = f"environment-{lock.removeprefix('sha256:')[:_NAME_DIGITS]}.txt"
    contents = {patch: code.patch or b"", listing: packages.encode()}
    written = [_write_new(run_folder, name, content) for name, content in contents.items()]
    new_files = [path for path in written if path]
    folder = run_folder.path
    record = folder / "submission.json"
    if not record.exists() and submission.capture(folder, code, lock=lock, patch=patch):
        new_files += [record, submission.job_script(folder)]
    stated = {tag: environment[name] for tag, name in _STATED_TAGS.items() if environment.get(name)}
    tags = {"toolkit.seed": str(seed), "toolkit.environment": lock, "toolkit.user": attempt.user}
    return RunFacts(code.tags() | tags | stated, tuple(new_files))


def _write_new(run_folder: RunFolder, name: str, content: bytes) -> Path | None:
    """Write a file named by its content, and return its path.

    None when there is no content, or when the file exists.
    """
    path = run_folder.path / name
    if not name or path.exists():
        return None
    write_atomic(path, content)
    return path
