"""Images that several local clouds of one host have built, shared as links to the same files.

Each cloud has its own store, and takes what it needs from here: nobody's deletion takes a file
from anybody else. Images are named by their recipe, so one that is here is the right one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines.driver import check_image_id

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTIAL = ".partial-"


@dataclass(frozen=True, slots=True)
class Library:
    """The shared images below `root`, which need not exist."""

    root: Path

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep other clouds' processes from the same work.

        The lock ends with this process.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def is_locked(self, name: str) -> bool:
        """Say whether somebody is at that work."""
        try:
            descriptor = os.open(self.root / f"{name}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def can_link_into(self, directory: Path) -> bool:
        """Return whether a file here can be linked into the directory.

        Links can't cross a mount.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.root, prefix=_PARTIAL) as probe:
            link = directory / Path(probe.name).name
            try:
                os.link(probe.name, link)
            except OSError:
                return False
        link.unlink()
        return True

    def ids(self) -> tuple[str, ...]:
        """Return the images that are whole."""
        return tuple(sorted(meta.parent.name for meta in self.root.glob("ami-*/meta.json")))

    def directory(self, image_id: str) -> Path:
        """Return where the image is, or would be."""
        return self.root / check_image_id(image_id)

    def add(self, directory: Path) -> None:
        """Add an image's directory of the same filesystem.

        An existing image stays.
        """
        with self.locked("adding"):
            for partial in self.root.glob(f"{_PARTIAL}*"):
                shutil.rmtree(partial, ignore_errors=True)
            link_tree(directory, self.directory(directory.name))

    def link_to(self, image_id: str, target: Path) -> bool:
        """Make `target` the image's directory; False where there is no such image."""
        source = self.directory(image_id)
        if not (source / "meta.json").exists():
            return False
        link_tree(source, target)
        return True


def link_tree(source: Path, target: Path) -> None:
    """Make a tree of links to the same files.

    It appears whole or not at all; an existing target stays.
    """
    if target.exists():
        return
    # Of this call's own: two threads, or two stores of one directory, may lend the same image.
    scratch = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL}{target.name}-", dir=target.parent))
    partial = scratch / target.name
    try:
        # All of it: an overlay keeps in extended attributes which files it hides.
        argv = ["cp", "--archive", "--link", "--no-target-directory", str(source), str(partial)]
        subprocess.run(argv, check=True, capture_output=True, timeout=600)
        partial.rename(target)
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
