"""Which code a run was: the commit where git knows it, and the hash of the script in any case."""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def code_tags(script: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """MLflow tags for the code at `script`.

    The commit comes from TOOLKIT_GIT_SHA (what submitted the job knows best), from git, or from a
    GIT_SHA file beside the script (how the jobscripts reach a cluster, where they are no checkout).
    """
    tags = {"toolkit.code_sha256": _hash(script)}
    stated = environment.get("TOOLKIT_GIT_SHA") or _git(script.parent) or _beside(script.parent)
    if stated:
        sha, _, dirty = stated.partition("+")
        tags["mlflow.source.git.commit"] = sha
        tags["toolkit.git_dirty"] = str(dirty == "dirty").lower()
    return tags


def _git(folder: Path) -> str | None:
    """`<sha>` or `<sha>+dirty`; None where there is no git or no checkout."""
    sha = _run(folder, "rev-parse", "HEAD")
    if sha is None:
        return None
    status = _run(folder, "status", "--porcelain", "--untracked-files=no")
    return sha if status == "" else f"{sha}+dirty"


def _run(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _beside(folder: Path) -> str | None:
    for place in (folder, folder.parent):
        try:
            return (place / "GIT_SHA").read_text(encoding="ascii").strip()[:64] or None
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _hash(script: Path) -> str:
    try:
        return hashlib.sha256(script.read_bytes()).hexdigest()
    except OSError:
        return "unknown"
