"""The budgets of a backup, brought into this head: what was spent, overrides and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.budgets import files
from slurmplugins.budgets.memory import restored
from slurmplugins.errors import StateError
from slurmplugins.head import saved_folders
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def restore_budgets(packed: Path, folder: Path, *, same_cluster: bool) -> None:
    """Replace the memory, and put the old audit log before this head's.

    A damaged memory is restored as it is: passes then say so and move no limit. May be repeated.
    Raises OSError, EOFError or tarfile.TarError.
    """
    with (
        saved_folders.taken_out(packed, (files.FILE, files.AUDIT)) as source,
        saved_folders.held(folder, files.LOCK),
    ):
        _restore_memory(source, folder, same_cluster=same_cluster)
        _restore_audit(source, folder)


def _restore_memory(source: Path, folder: Path, *, same_cluster: bool) -> None:
    if not (source / files.FILE).exists():
        return  # a head on which no pass was made yet
    try:
        memory = files.load(source)
    except StateError:
        write_atomically(
            folder / files.FILE, (source / files.FILE).read_bytes(), mode=saved_folders.MODE
        )
    else:
        files.save(folder, restored(memory, same_cluster=same_cluster))


def _restore_audit(source: Path, folder: Path) -> None:
    earlier, own = source / files.AUDIT, folder / files.AUDIT
    if earlier.exists():
        old = earlier.read_bytes()
        new = own.read_bytes() if own.exists() else b""
        write_atomically(own, new if new.startswith(old) else old + new, mode=saved_folders.MODE)


def spending_words(folder: Path) -> tuple[str, ...]:
    """Return what a restore overwrites of this head's budgets, if anything."""
    try:
        known = files.load(folder)
    except StateError:
        return ("what budgets have spent, which can't be read",)
    spent = sum((usd for days in known.days.values() for usd in days.values()), start=0)
    return (f"{spent:.2f} USD that budgets know as spent",) if spent else ()
