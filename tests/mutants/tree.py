"""A copy of the checkout that tests may change."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")


def say(text: str) -> None:
    """Print a line at once, since the next step may take minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of the checkout's files, without ignored ones.

    Its parent is deleted with it, and is for temporary files of tests.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode()  # fmt: skip
    place = MEMORY if MEMORY.is_dir() else None
    # A test's process may outlive its mutant, and write meanwhile.
    with tempfile.TemporaryDirectory(
        prefix="mutants-", dir=place, ignore_cleanup_errors=True
    ) as folder:
        tree = Path(folder) / "checkout"
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield tree
