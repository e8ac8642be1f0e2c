"""The files of account budgets on the head's data volume: the memory, and the audit log."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets.memory import Memory, from_json, to_json
from slurmplugins.budgets.words import ended_words, refusal
from slurmplugins.config.budgets import Action
from slurmplugins.errors import StateError
from slurmplugins.model.json_input import loads
from slurmplugins.system.files import write_atomically
from slurmplugins.system.logger import to_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from slurmplugins.budgets.figures import Figures
    from slurmplugins.config.budgets import BudgetsConfig


FILE: Final = "budgets.json"
AUDIT: Final = "audit.jsonl"
LOCK: Final = "budgets.lock"
"""Held during a pass, an override and a restore."""
REMAINING: Final = "remaining.json"
"""In the head's state folder: US dollars that are left, by account and project, and refusals."""
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


def save_remaining(folder: Path, figures: Sequence[Figures], config: BudgetsConfig) -> None:
    """Write what accounts and projects may still commit.

    The line at submit reads it. A budget is that of its accounts' whole families. Of several, the
    least counts. Stale figures say nothing, and without a limit there is no file. Raises
    StateError.
    """
    known = [item for item in figures if item.free is not None and not item.stale]
    value = {
        "accounts": _least((item, config.accounts_of(item.budget)) for item in known),
        "projects": _least((item, item.budget.projects) for item in known),
        "refused": {
            name: refusal(item)
            for item in known
            for name in item.budget.projects
            if Action.REFUSE in item.actions
        },
        "ended_accounts": _ended((item, config.accounts_of(item.budget)) for item in known),
        "ended_projects": _ended((item, item.budget.projects) for item in known),
        "account_projects": {
            account: name
            for account, name in config.account_projects.items()
            if name in config.projects
        },
    }
    path = folder / REMAINING
    try:
        if known:
            write_atomically(path, json.dumps(value).encode(), mode=0o640)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StateError(f"{path} can't be written: {error}") from error


def _ended(items: Iterable[tuple[Figures, Iterable[str]]]) -> dict[str, str]:
    """Return what is told of grants that ended, by name."""
    return {name: ended_words(item) for item, names in items if item.ended for name in names}


def _least(items: Iterable[tuple[Figures, Iterable[str]]]) -> dict[str, str]:
    """Return US dollars by name, of the budget that leaves least."""
    least: dict[str, Decimal] = {}
    for item, names in items:
        free = Decimal(0) if item.holds else max(item.free or Decimal(0), Decimal(0))
        for name in names:
            least[name] = min(free, least.get(name, free))
    return {name: f"{usd:.2f}" for name, usd in sorted(least.items())}


def audit(folder: Path, at: float, event: str, **fields: object) -> None:
    """Add a line to the audit log."""
    line = json.dumps({"at": at, "event": event, **fields}, default=str)
    to_file(folder / AUDIT, limit=AUDIT_BYTES)(line + "\n")
