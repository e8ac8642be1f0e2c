"""Values as sacctmgr prints and reads them: lines, times, amounts of TRES."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MIB: Final = {"M": 1, "G": 1024, "T": 1024 * 1024}
_CLOCK: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_DAY: Final = 86_400


def rows(text: str, fields: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield sacctmgr's lines as cells; the last may hold the separator."""
    for line in text.split("\n"):  # splitlines would also break within an admin's comment
        if line.strip():
            cells = tuple(cell.strip() for cell in line.split("|", len(fields) - 1))
            if len(cells) != len(fields):
                raise SlurmAnswerError(
                    f"sacctmgr printed a line without {len(fields)} columns: {line[:80]!r}"
                )
            yield cells


def seconds(text: str) -> int:
    """Return the seconds of a time as slurm.conf and sacctmgr write it.

    With days, the first number is hours. Without, two numbers are minutes and seconds.
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise SlurmAnswerError(f"sacctmgr printed no time: {text[:40]!r}")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, rest = (*numbers, 0, 0)[:3]
    elif len(numbers) == len(parts):
        hours, minutes, rest = numbers
    else:
        hours, minutes, rest = 0, *(*numbers, 0)[:2]
    return int(days or 0) * _DAY + hours * 3600 + minutes * 60 + rest


def whole_minutes(duration: int) -> int:
    """Round seconds up to a minute, as sacctmgr does."""
    return -(-duration // 60) * 60


def clock(duration: int) -> str:
    """Return seconds as sacctmgr reads and prints a time with days."""
    left = f"{duration % _DAY // 3600:02}:{duration % 3600 // 60:02}:{duration % 60:02}"
    return f"{duration // _DAY}-{left}"


def amount(text: str) -> int:
    """Return an amount; memory is in MiB."""
    match = re.fullmatch(r"(\d+)([MGT]?)", text, re.ASCII)
    if match is None:
        raise SlurmAnswerError(f"sacctmgr printed no amount of a TRES: {text[:40]!r}")
    return int(match[1]) * _MIB.get(match[2], 1)


def tres_text(tres: Mapping[str, int]) -> str:
    """Return TRES in one order, as one word."""
    return ",".join(f"{name}={number}" for name, number in sorted(tres.items()))
