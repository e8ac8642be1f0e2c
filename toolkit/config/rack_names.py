"""Names of nodes that are no instances, as Slurm writes them in a hostlist.

They are another administrator's: `RACK7`, `dgx[01-16]`, `r1-n[1-4]-ib`. Names of pools' nodes
have a pattern of their own (`slurmplugins.model.hostlist`).
"""

from __future__ import annotations

import re
from typing import Final

MAX_NAMES: Final = 20_000
"""Limits the memory that a hostile hostlist can take."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_GROUP: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,40})\[([0-9,-]{1,65536})\]"
    r"(?:([A-Za-z0-9._-]{0,40})\[([0-9,-]{1,65536})\])?([A-Za-z0-9._-]{0,20})",
    re.ASCII,
)
"""One range or two, as slurm.conf(5) allows: rack[0-63]_blade[0-41]."""
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
# The commas of a hostlist that are not within brackets.
_BETWEEN_PARTS: Final = re.compile(r",(?![^\[]*\])")


def rack_nodes(hostlist: str) -> tuple[str, ...]:
    """Return the names of a hostlist, in its order.

    Raises ValueError for malformed text and for too many names.
    """
    names: list[str] = []
    for part in _BETWEEN_PARTS.split(hostlist):
        names += _names(part)
        if len(names) > MAX_NAMES:
            raise ValueError(f"expected at most {MAX_NAMES:,} nodes")
    return tuple(names)


def _names(part: str) -> list[str]:
    if _NAME.fullmatch(part):
        return [part]
    group = _GROUP.fullmatch(part)
    if group is None:
        raise ValueError(f"expected nodes such as rack-[01-16], not {part[:80]!r}")
    prefix, ranges, between, more_ranges, suffix = group.groups()
    firsts = _numbers(ranges)
    seconds = [""] if more_ranges is None else _numbers(more_ranges)
    if len(firsts) * len(seconds) > MAX_NAMES:
        raise ValueError(f"expected at most {MAX_NAMES:,} nodes, not {part[:80]!r}")
    middle = between or ""
    return [f"{prefix}{first}{middle}{second}{suffix}" for first in firsts for second in seconds]


def _numbers(ranges: str) -> list[str]:
    """Return the numbers of a bracket, with their zeros."""
    numbers: list[str] = []
    for item in ranges.split(","):
        bounds = _RANGE.fullmatch(item)
        if bounds is None:
            raise ValueError(f"expected a range such as 01-16, not {item[:80]!r}")
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if last < first or len(numbers) + last - first > MAX_NAMES:
            raise ValueError(f"expected a range of 1 to {MAX_NAMES:,} nodes, not {item!r}")
        width = len(bounds[1])
        numbers += [f"{number:0{width}}" for number in range(first, last + 1)]
    return numbers
