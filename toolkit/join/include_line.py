"""The one line that a site's slurm.conf gets: added at its end, and taken out to the byte. Pure.

At the end: slurmctld takes the last of two equal settings, and ours must be the last.
"""

from __future__ import annotations

from typing import Final

from toolkit.join.errors import JoinConflict

OPEN_END: Final = ", after a line without an end"
"""In the comment, where the file did not end with a newline: one more byte is ours."""
NEW_FILE: Final = ", with this file"
"""In the comment, where there was no file."""


def comment(cluster: str, case: str = "") -> str:
    """Return the comment above our line."""
    return (
        f"# toolkit join {cluster}: added by `toolkit join apply`{case};"
        " `toolkit join remove` takes both lines out"
    )


def added(text: str | None, cluster: str, name: str) -> str:
    """Return the text with our line at its end.

    None stands for no file. A text that has the line stays as it is.
    """
    if text is not None and has_line(text, name):
        return text
    case = NEW_FILE if text is None else OPEN_END if text and not text.endswith("\n") else ""
    before = (text or "") + ("\n" if case == OPEN_END else "")
    return f"{before}{comment(cluster, case)}\nInclude {name}\n"


def removed(text: str, cluster: str, name: str) -> str | None:
    """Return the text as it was; None where there was no file.

    A text without our comment stays as it is. Raises JoinConflict if the two lines were changed.
    """
    for case in (OPEN_END, NEW_FILE, ""):
        first = f"{comment(cluster, case)}\n"
        at = text.find(first)
        if at < 0:
            continue
        block = f"{first}Include {name}\n"
        if not text.startswith(block, at):
            raise JoinConflict(
                f"the line below {first.strip()!r} is not `Include {name}`",
                next_step="restore it, or delete both lines, then run this again",
            )
        start = at - 1 if case == OPEN_END else at
        rest = text[:start] + text[at + len(block) :]
        return None if case == NEW_FILE and not rest else rest
    return text


def has_line(text: str, name: str) -> bool:
    """Return whether the text includes the file, by us or by hand."""
    return line_number(text, name) > 0


def line_number(text: str, name: str) -> int:
    """Return the line that includes the file; 0 without one."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if len(words) > 1 and words[0].lower() == "include" and words[1] == name:
            return number
    return 0
