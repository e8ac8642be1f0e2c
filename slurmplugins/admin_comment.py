"""A job's AdminComment: our lines beside those of others, and none of it without bounds. Pure."""

from __future__ import annotations

from typing import Final

from slurmplugins.model import REASON_PREFIX

COMMENT_LENGTH: Final = 1000
"""Of an AdminComment, what is ours is no longer; it is stored with every job record."""

_BETWEEN: Final = " | "


def plain(text: str, length: int) -> str:
    """Text fit for a reason or a comment: printable ASCII, no quotes, bounded."""
    kept = "".join(char if " " <= char <= "~" and char not in "\"'`\\" else " " for char in text)
    return " ".join(kept.split())[:length]


def appended(before: str, line: str) -> str:
    """The comment with the line at its end. What we wrote stays within bounds, by dropping our own
    oldest lines; what others wrote stays as it is.
    """
    lines = before.split(_BETWEEN) if before else []
    if lines and lines[-1] == line:
        return before
    ours = [at for at, item in enumerate(lines) if item.startswith(REASON_PREFIX)]
    room = COMMENT_LENGTH - len(line)
    dropped: set[int] = set()
    for at in reversed(ours):
        room -= len(lines[at])
        if room < 0:
            dropped.add(at)
    return _BETWEEN.join([*(item for at, item in enumerate(lines) if at not in dropped), line])
