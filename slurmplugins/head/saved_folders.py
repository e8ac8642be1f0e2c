"""Folders as tar files, also while their services write to them."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.system import files
from slurmplugins.system.streams import LEVEL, private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OWNER: Final = "slurm"
"""The user as whom passes run."""
MODE: Final = 0o640
"""Of the files of passes."""
MAX_MEMBER: Final = 64 * 1024 * 1024
"""Bytes of a file that is taken out of a tar file into memory."""
_NO_LINK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def save(folder: Path, path: Path) -> None:
    """Write a folder's files to a new tar file.

    slurmctld replaces its files by renames, so each is whole. A file that disappears meanwhile is
    left out. Raises OSError.
    """
    with (
        private(path) as file,
        gzip.GzipFile("", "wb", LEVEL, file, 0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        # os.walk, unlike rglob, goes on when a folder disappears under it.
        for root, _, names in os.walk(folder):
            for name in sorted(names):
                found = Path(root, name)
                _add(tar, found, str(found.relative_to(folder)))


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    try:
        with os.fdopen(os.open(path, _NO_LINK), "rb") as content:
            info = tar.gettarinfo(arcname=name, fileobj=content)
            if info.isreg():
                tar.addfile(info, content)
    except (FileNotFoundError, IsADirectoryError):
        return  # gone since it was listed; a folder is made by the names of its files
    except OSError:
        if not path.is_symlink() and path.exists():
            raise


def take_out(path: Path, names: Iterable[str], folder: Path, owner: str) -> tuple[str, ...]:
    """Write some files of a tar file; return their names.

    Raises OSError, EOFError or tarfile.TarError.
    """
    wanted, written = set(names), []
    with tarfile.open(path, "r|gz") as tar:
        for member in tar:
            if member.name in wanted and member.isreg() and member.size <= MAX_MEMBER:
                content = tar.extractfile(member)
                target = folder / member.name
                files.write_atomically(target, content.read() if content else b"", mode=0o600)
                shutil.chown(target, owner, owner)
                written.append(member.name)
    return tuple(written)


@contextmanager
def taken_out(packed: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield a folder with some files of a tar file.

    Raises OSError, EOFError or tarfile.TarError.
    """
    with tempfile.TemporaryDirectory(prefix="restore-", dir=packed.parent) as name:
        folder = Path(name)
        take_out(packed, names, folder, OWNER)
        yield folder


@contextmanager
def held(folder: Path, lock: str) -> Iterator[None]:
    """Keep passes from a folder; then give its files to their user.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder / lock):
        yield
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, OWNER, OWNER)
