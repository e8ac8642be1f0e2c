"""The files of account budgets on the head's data volume: the memory, and the audit log."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets.memory import Memory, from_json, to_json
from slurmplugins.errors import StateError
from slurmplugins.model.json_input import loads
from slurmplugins.system.files import write_atomically
from slurmplugins.system.logger import to_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from slurmplugins.budgets.ladder import Figures


FILE: Final = "budgets.json"
AUDIT: Final = "audit.jsonl"
REMAINING: Final = "remaining.json"
"""In the head's state folder: US dollars that are left, by account."""
AUDIT_BYTES: Final = 64 * 1024 * 1024
"""Size at which a new audit log begins; the previous one is kept too."""


def load(folder: Path) -> Memory:
    """Read the memory; nothing is known where the file does not exist.

    Raises StateError for a damaged file: it may hide what was spent.
    """
    path = folder / FILE
    try:
        return from_json(loads(path.read_bytes()))
    except FileNotFoundError:
        return Memory()
    except (OSError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StateError(
            f"{path} can't be read, so no limit is moved: {error}; without the file, the period is"
            " measured anew"
        ) from error


def save(folder: Path, memory: Memory) -> None:
    """Write the memory. Raises StateError."""
    try:
        text = json.dumps(to_json(memory), default=str)
        write_atomically(folder / FILE, text.encode(), mode=0o640)
    except OSError as error:
        raise StateError(f"{folder / FILE} can't be written: {error}") from error


def save_remaining(
    folder: Path, figures: Sequence[Figures], family: Callable[[str], Iterable[str]]
) -> None:
    """Write what each account may still commit, for the line at submit.

    A budget is that of its account's whole `family`. Of several, the least counts.
    Stale figures say nothing, and without a limit there is no file. Raises StateError.
    """
    least: dict[str, Decimal] = {}
    for item in figures:
        if item.free is not None and not item.stale:
            free = max(item.free, Decimal(0))
            for account in family(item.budget.account):
                least[account] = min(free, least.get(account, free))
    path = folder / REMAINING
    try:
        if not least:
            path.unlink(missing_ok=True)
            return
        accounts = {account: f"{usd:.2f}" for account, usd in sorted(least.items())}
        write_atomically(path, json.dumps({"accounts": accounts}).encode(), mode=0o640)
    except OSError as error:
        raise StateError(f"{path} can't be written: {error}") from error


def audit(folder: Path, at: float, event: str, **fields: object) -> None:
    """Add a line to the audit log."""
    line = json.dumps({"at": at, "event": event, **fields}, default=str)
    to_file(folder / AUDIT, limit=AUDIT_BYTES)(line + "\n")
