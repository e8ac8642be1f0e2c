"""Hostlists of a site, whose names have no pattern that we know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolkit.config.rack_names import rack_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,6})(\D*)", re.ASCII)


def expanded(hostlist: str) -> tuple[str, ...]:
    """Return the names of a hostlist.

    One in another syntax stays as it is.
    """
    try:
        return rack_nodes(hostlist)
    except ValueError:
        return (hostlist,)


def compressed(names: Iterable[str]) -> str:
    """Return names as one hostlist, such as rack[01-16],dgx1."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    others: list[str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            others.append(name)
        else:
            groups.setdefault((match[1], match[3], len(match[2])), []).append(int(match[2]))
    parts = [
        f"{prefix}{numbers[0]:0{width}}{suffix}"
        if len(numbers) == 1
        else f"{prefix}[{_ranges(sorted(numbers), width)}]{suffix}"
        for (prefix, suffix, width), numbers in groups.items()
    ]
    return ",".join((*parts, *others))


def _ranges(numbers: list[int], width: int) -> str:
    starts = [number for number in numbers if number - 1 not in set(numbers)]
    ends = [number for number in numbers if number + 1 not in set(numbers)]
    return ",".join(
        f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
        for first, last in zip(starts, ends, strict=True)
    )
