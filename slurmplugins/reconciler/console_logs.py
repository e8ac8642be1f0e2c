"""Keep the consoles of instances that never came up, for as long as a person may ask. Bounded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 64 * 1024
"""Bytes of one console; EC2 keeps as many."""

MOST_FILES: Final = 20

TAIL_LINES: Final = 30

_ID: Final = re.compile(r"i-[0-9a-f]{1,17}", re.ASCII)


def save(state: Path, instance_id: str, text: str) -> None:
    """Keep the end of a console, and delete the oldest ones.

    Raises OSError.
    """
    directory = state / "consoles"
    directory.mkdir(mode=0o750, exist_ok=True)
    content = text.encode("utf-8", errors="replace")[-MOST_BYTES:]
    write_atomically(_path(state, instance_id), content, mode=0o640)
    consoles = sorted(directory.glob("i-*.log"), key=lambda path: path.stat().st_mtime)
    for path in consoles[:-MOST_FILES]:
        path.unlink(missing_ok=True)


def is_saved(state: Path, instance_id: str) -> bool:
    """Return whether this instance's console is kept."""
    return _path(state, instance_id).exists()


def tail(state: Path, instance_id: str) -> tuple[str, ...]:
    """Return the console's last lines, printable characters only.

    Empty where no console is kept.
    """
    try:
        text = _path(state, instance_id).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    lines = ("".join(char for char in line if char.isprintable()) for line in text.splitlines())
    return tuple(line[:500] for line in lines if line.strip())[-TAIL_LINES:]


def _path(state: Path, instance_id: str) -> Path:
    if not _ID.fullmatch(instance_id):
        raise FileNotFoundError(instance_id)
    return state / "consoles" / f"{instance_id}.log"
