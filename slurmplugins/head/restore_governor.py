"""Adds what bursts have cost by a backup to what this head knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import StateError
from slurmplugins.governor import spending_file
from slurmplugins.governor.spending import Spending, with_restored
from slurmplugins.head import saved_folders
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def restore_governor(packed: Path, folder: Path) -> None:
    """Add a backup's attempts to those of this head.

    A damaged file is restored as it is: then no job bursts. A backup without the file changes
    nothing. May be repeated. Raises OSError, StateError, EOFError or tarfile.TarError.
    """
    with saved_folders.taken_out(packed, (spending_file.FILE,)) as source:
        if not (source / spending_file.FILE).exists():
            return  # a head on which no pass had anything to remember
        with saved_folders.held(folder, spending_file.LOCK):
            _restore(source, folder)


def _restore(source: Path, folder: Path) -> None:
    try:
        saved = spending_file.load(source)
    except StateError:
        content = (source / spending_file.FILE).read_bytes()
        write_atomically(folder / spending_file.FILE, content, mode=saved_folders.MODE)
    else:
        spending_file.save(folder, with_restored(_own(folder), saved))


def _own(folder: Path) -> Spending:
    """Return what this head knows; nothing if it can't be read."""
    try:
        return spending_file.load(folder)
    except StateError:
        return Spending()
