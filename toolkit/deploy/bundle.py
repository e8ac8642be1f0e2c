"""The bundle: one zip with everything that an instance needs to set itself up.

The same files give the same bytes, so the hash of the zip is the version of the
cluster.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit import assets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Zip has no time before 1980; a fixed time keeps the bytes the same.
EPOCH = (1980, 1, 1, 0, 0, 0)
FILE_MODE, PROGRAM_MODE = 0o644, 0o755
# The code that runs in jobs; its commit goes into the record of each run.
JOB_CODE = ("jobscripts", "toolkit/datasets", "toolkit/training")
GIT_SECONDS = 20.0
Files = dict[str, tuple[int, bytes]]
"""Mode and content of files, by path."""
NOT_SHIPPED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".ansible", ".pytest_cache"}


@dataclass(frozen=True, slots=True)
class Bundle:
    """A zip and its SHA-256, which whoever unpacks it compares."""

    sha: str
    data: bytes


def cluster_bundle(rendered: Mapping[str, str]) -> Bundle:
    """Return the head node's bundle.

    It has playbooks, runtime, training package, job scripts and configuration.
    """
    return pack(
        {
            **_tree(assets.directory("ansible"), "ansible"),
            **_tree(assets.directory("templates") / "slurm", "templates/slurm"),
            **_tree(assets.slurmplugins_directory(), "slurmplugins"),
            **_of_jobs(),
            **_git_sha(),
            **_texts(rendered),
        }
    )


def image_files(*, with_jobscripts: bool = False) -> Files:
    """Return the files of the checkout that are in a builder's bundle.

    Nothing in it belongs to one cluster.
    """
    return {
        **(_of_jobs() if with_jobscripts else {}),
        **_tree(assets.directory("ansible"), "ansible"),
        **_tree(assets.directory("templates") / "slurm", "templates/slurm"),
        **_tree(assets.slurmplugins_directory(), "slurmplugins"),
    }


def image_bundle(files: Files, rendered: Mapping[str, str]) -> Bundle:
    """Return a builder's bundle: everything that is baked into an image."""
    return pack({**files, **_texts(rendered)})


def _of_jobs() -> Files:
    """Return the training package and the job scripts.

    Besides the packages themselves: the error tree, of which their errors are branches.
    """
    return {
        **_tree(assets.PACKAGE / "training", "toolkit/training"),
        **_tree(assets.PACKAGE / "datasets", "toolkit/datasets"),
        **{
            f"toolkit/{name}": (FILE_MODE, (assets.PACKAGE / name).read_bytes())
            for name in ("__init__.py", "errors.py")
        },
        **_tree(assets.directory("jobscripts"), "jobscripts"),
    }


def pack(files: Mapping[str, tuple[int, bytes]]) -> Bundle:
    """Zip `{path: (mode, content)}` in the order of the paths.

    Not compressed: each zlib packs the same files into other bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(files):
            mode, content = files[path]
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = mode << 16
            entry.create_system = 3  # Unix, on any system: otherwise the mode has no meaning
            archive.writestr(entry, content)
    data = buffer.getvalue()
    return Bundle(hashlib.sha256(data).hexdigest(), data)


def differing_paths(old: bytes, new: bytes) -> tuple[str, ...]:
    """Return the paths that differ between two zips.

    One of them lacks the file, or its content or mode differs.
    """
    before, after = _members(old), _members(new)
    paths = before.keys() | after.keys()
    return tuple(sorted(path for path in paths if before.get(path) != after.get(path)))


def _members(data: bytes) -> dict[str, tuple[int, int]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {entry.filename: (entry.CRC, entry.external_attr) for entry in archive.infolist()}


def _texts(rendered: Mapping[str, str]) -> Files:
    return {f"rendered/{name}": (FILE_MODE, text.encode()) for name, text in rendered.items()}


def _git_sha() -> Files:
    """Return the commit of the jobs' code, for each run's record.

    It is the last commit that touched the code, not the checkout's: other commits
    change no cluster. Without git there is none.
    """
    root = assets.PACKAGE.parent
    sha = _git(root, "log", "-1", "--format=%H", "--", *JOB_CODE)
    if not sha:
        return {}
    dirty = "+dirty" if _git(root, "status", "--porcelain", "--", *JOB_CODE) else ""
    return {"jobscripts/GIT_SHA": (FILE_MODE, f"{sha}{dirty}\n".encode())}


def _git(root: Path, *arguments: str) -> str:
    try:
        process = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()


def _tree(root: Path, prefix: str) -> Files:
    return {
        f"{prefix}/{path.relative_to(root).as_posix()}": (
            PROGRAM_MODE if path.stat().st_mode & 0o100 else FILE_MODE,
            path.read_bytes(),
        )
        for path in _files(root)
    }


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        parts = set(path.relative_to(root).parts)
        if path.is_file() and not parts & NOT_SHIPPED and path.suffix != ".pyc":
            yield path
