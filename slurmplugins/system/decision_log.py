"""The decision log: the decisions of all programs of the engine in one file, for `toolkit why`.

A decision is a line of the engine's log whose event is one of DECISIONS, copied unchanged.
This file therefore holds nothing that the logs do not. Its size is limited to two files of
MAX_BYTES.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import json_input
from slurmplugins.system.log_events import DECISIONS
from slurmplugins.system.logger import to_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

MAX_BYTES: Final = 8 * 1024 * 1024
"""Size at which a new file begins; the previous one is kept too."""

RECENT_COUNT: Final = 200
"""Decisions about one node, job or instance that are worth reading."""


def copying_writer(path: Path, write: Callable[[str], None]) -> Callable[[str], None]:
    """Return a log writer that also copies decisions to the decision log."""
    copy_line = to_file(path, limit=MAX_BYTES)

    def write_and_copy(line: str) -> None:
        write(line)
        if _event(line) in DECISIONS:
            copy_line(line)

    return write_and_copy


def recent_decisions(
    path: Path, accepts: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], ...]:
    """Return the latest accepted decisions, oldest first.

    Of a decision that fills several lines, return the first line for which `accepts` is true.
    Decisions before the last RECENT_COUNT are left out.
    """
    decisions: deque[dict[str, Any]] = deque(maxlen=RECENT_COUNT)
    for record in _records(path):
        if accepts(record) and not (decisions and _same_decision(decisions[-1], record)):
            decisions.append(record)
    return tuple(decisions)


def _same_decision(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two lines are parts of one decision."""
    if "part" not in first or first["part"] >= second.get("part", 0):
        return False
    return all(
        first.get(key) == second.get(key) for key in ("at", "pid", "event", "attempt", "job")
    )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for log_file in (path.with_name(f"{path.name}.1"), path):
        try:
            text = log_file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            try:
                record = json_input.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def _event(line: str) -> str:
    try:
        return str(json_input.loads(line).get("event", ""))
    except (ValueError, AttributeError):
        return ""
