"""What has to be known of a run to judge it and to repeat it, gathered when an attempt begins."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import write_atomic
from toolkit.training.reproduce import installed_packages, submission
from toolkit.training.reproduce.git_commit import code_of
from toolkit.training.run_folder.run_folder import RunDir

# Said by who submitted the job or by the batch script, and recorded as they stand.
_STATED = {
    "toolkit.container": "TOOLKIT_CONTAINER_DIGEST",
    "toolkit.dataset": "TOOLKIT_DATASET",
    "toolkit.sweep": "TOOLKIT_SWEEP",
    "toolkit.replay_of": "TOOLKIT_REPLAY_OF",
}
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Dossier:
    """Tags of the run, and files that go with it."""

    tags: Mapping[str, str]
    artifacts: tuple[Path, ...]


def gather(
    attempt: Attempt,
    run_dir: RunDir,
    *,
    seed: int,
    script: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Dossier:
    """Look at the code, the packages and the submission; keep in the folder what may change.

    The script is this program's own unless another is named.
    """
    code = code_of(script or Path(sys.argv[0]).resolve(), environment)
    patch = f"code-{code.patch_sha256[:_SHORT]}.patch" if code.patch else ""
    packages = installed_packages.text()
    lock = installed_packages.digest(packages)
    listing = f"environment-{lock.removeprefix('sha256:')[:_SHORT]}.txt"
    contents = {patch: code.patch or b"", listing: packages.encode()}
    new = [path for name, content in contents.items() if (path := _kept(run_dir, name, content))]
    record = run_dir.path / "submission.json"
    if not record.exists() and submission.capture(run_dir.path, code, lock=lock, patch=patch):
        new += [record, submission.job_script(run_dir.path)]
    stated = {tag: environment[name] for tag, name in _STATED.items() if environment.get(name)}
    tags = {"toolkit.seed": str(seed), "toolkit.environment": lock, "toolkit.user": attempt.user}
    return Dossier(code.tags() | tags | stated, tuple(new))


def _kept(run_dir: RunDir, name: str, content: bytes) -> Path | None:
    """Write a file that is named by its content; None when there is none or it is there already."""
    path = run_dir.path / name
    if not name or path.exists():
        return None
    write_atomic(path, content)
    return path
