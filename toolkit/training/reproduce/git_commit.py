"""Identify the code of a run: the commit, the uncommitted changes, and the script's hash.

The hash is there in any case, the rest only in a git checkout.
"""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATCH_LIMIT = 1 << 20
"""Bytes of a dirty diff that are kept. A larger one is data in the wrong place; only its hash
stays.
"""

_TIMEOUT = 10


@dataclass(frozen=True, slots=True)
class Code:
    """The code at one script. Fields that git doesn't know are empty."""

    script: str
    script_sha256: str
    root: str = ""  # of the checkout
    commit: str = ""
    dirty: bool = False
    patch_sha256: str = ""
    patch_bytes: int = 0
    patch: bytes | None = None  # None: no change, or too large to keep

    def tags(self) -> dict[str, str]:
        """Return the code's identity as MLflow tags."""
        tags = {"toolkit.code_sha256": self.script_sha256}
        if self.commit:
            tags["mlflow.source.git.commit"] = self.commit
            tags["toolkit.git_dirty"] = str(self.dirty).lower()
        if self.patch_sha256:
            tags["toolkit.git_diff"] = f"sha256:{self.patch_sha256}"
            tags["toolkit.git_diff_bytes"] = str(self.patch_bytes)
            tags["toolkit.git_diff_kept"] = str(self.patch is not None).lower()
        return tags


def code_of(script: Path, environment: Mapping[str, str] = os.environ) -> Code:
    """Return the identity of the code at `script`.

    The commit comes from TOOLKIT_GIT_SHA (set by the submitter, who knows best), or else from git.
    The last source is a GIT_SHA file beside the script: on a cluster the jobscripts are no
    checkout.
    """
    digest = _hash(script)
    stated_commit = environment.get("TOOLKIT_GIT_SHA")
    checkout = None if stated_commit else _checkout(script, digest)
    if checkout:
        return checkout
    sha, _, dirty = (stated_commit or _read_commit_file(script.parent) or "").partition("+")
    return Code(str(script), digest, commit=sha, dirty=dirty == "dirty")


def _checkout(script: Path, digest: str) -> Code | None:
    folder = script.parent
    root = git(folder, "rev-parse", "--show-toplevel")
    commit = git(folder, "rev-parse", "HEAD")
    if root is None or commit is None:
        return None
    root_path = root.decode(errors="replace").strip()
    # The diff covers the whole checkout: a script imports modules beside and above it.
    patch = git(Path(root_path), "diff", "--binary", "--no-color", "--no-ext-diff", "HEAD")
    return Code(
        script=str(script),
        script_sha256=digest,
        root=root_path,
        commit=commit.decode().strip(),
        dirty=patch is None or bool(patch),
        patch_sha256=hashlib.sha256(patch).hexdigest() if patch else "",
        patch_bytes=len(patch or b""),
        patch=patch if patch and len(patch) <= PATCH_LIMIT else None,
    )


def git(folder: Path, *arguments: str, timeout: float = _TIMEOUT) -> bytes | None:
    """Return git's output, or None when it fails.

    It is for commands that only read a checkout.
    """
    # git would refuse to read another user's checkout. Here it only reads.
    argv = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    try:
        process = subprocess.run(argv, capture_output=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


def _read_commit_file(folder: Path) -> str | None:
    for candidate in (folder, folder.parent):
        try:
            return (candidate / "GIT_SHA").read_text(encoding="ascii").strip()[:64] or None
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _hash(script: Path) -> str:
    try:
        return hashlib.sha256(script.read_bytes()).hexdigest()
    except OSError:
        return "unknown"
