"""Node names and hostlists: parse, expand (bounded), compress. The only name pattern is here."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Final, NewType, cast

from slurmplugins.errors import BadName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NodeName = NewType("NodeName", str)
"""A string that `parse` has accepted."""

MAX_EXPANSION: Final = 20_000
"""Limits the memory that a hostile hostlist can take. Twice the largest cluster aimed at."""

_NAME: Final = re.compile(r"([a-z][a-z0-9-]{0,40}-)(\d{1,6})", re.ASCII)
_GROUP: Final = re.compile(r"([a-z][a-z0-9-]{0,40}-)\[([0-9,-]{1,65536})\]", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


def parse(text: str) -> NodeName:
    """Return text as a node name, or raise BadName."""
    if not _NAME.fullmatch(text):
        raise BadName(f"not a node name: {text[:80]!r}")
    return NodeName(text)


def pool_of(name: NodeName) -> str:
    """Return the pool's name: the part before the number."""
    return name.rpartition("-")[0]


def expand(
    hostlist: str, *, limit: int = MAX_EXPANSION, invalid_names: list[str] | None = None
) -> tuple[NodeName, ...]:
    """Expand `gpu-[001-003,7],cpu-1` in the order written.

    Raises BadName when the text is malformed or names more than `limit` nodes.
    With a list `invalid_names`, it raises nothing. Parts that are not our names go to that list.
    So do the largest ranges of a hostlist that names more than `limit` nodes.
    """
    if not hostlist:
        return ()
    names: list[NodeName] = []
    invalid_parts: list[str] = []
    for part in split_parts(hostlist):
        try:
            names += _expand_part(part, limit - len(names))
        except BadName:
            if invalid_names is None:
                raise
            invalid_parts.append(part)
        if len(names) > limit:
            if invalid_names is None:
                raise BadName(f"hostlist names more than {limit} nodes")
            names, invalid_parts = _smallest_first(hostlist, limit)
            break
    if invalid_names is not None:
        invalid_names += invalid_parts
    return tuple(names)


def compress(names: Iterable[NodeName]) -> str:
    """Return the shortest hostlist of these names, ordered by `order`.

    `expand(compress(names)) == order(names)` for any names.
    """
    parts: list[str] = []
    for (prefix, width), group in groupby(order(names), key=_prefix_width):
        numbers = [int(name[len(prefix) :]) for name in group]
        ranges = [_range_text(first, last, width) for first, last in _number_ranges(numbers)]
        single = len(ranges) == 1 and "-" not in ranges[0]
        parts.append(f"{prefix}{ranges[0]}" if single else f"{prefix}[{','.join(ranges)}]")
    return ",".join(parts)


def order(names: Iterable[NodeName]) -> tuple[NodeName, ...]:
    """Return unique names, sorted by prefix, digits of the number, number."""
    return tuple(sorted(set(names), key=lambda name: (_prefix_width(name), name)))


def hostlists(names: Iterable[NodeName], *, characters: int) -> tuple[str, ...]:
    """Return hostlists that together give the names in their order.

    No hostlist is longer than `characters`, unless a single name is.
    """
    complete: list[str] = []
    parts: list[tuple[str, str]] = []
    for part in _ranges_in_order(names):
        if parts and len(_joined([*parts, part])) > characters:
            complete.append(_joined(parts))
            parts = []
        parts.append(part)
    return (*complete, _joined(parts)) if parts else tuple(complete)


def split_parts(hostlist: str) -> Iterator[str]:
    """Yield the text between commas that stand outside brackets."""
    pieces: list[str] = []
    depth = 0
    for piece in hostlist.split(","):
        pieces.append(piece)
        depth += piece.count("[") - piece.count("]")
        if depth == 0:
            yield ",".join(pieces)
            pieces.clear()
    if pieces:
        yield ",".join(pieces)


def _smallest_first(hostlist: str, limit: int) -> tuple[list[NodeName], list[str]]:
    """Return names up to the limit, smallest ranges first, and other parts."""
    pieces: list[tuple[int, str]] = []
    invalid_parts: list[str] = []
    for part in split_parts(hostlist):
        try:
            pieces += _pieces(part)
        except BadName:
            invalid_parts.append(part)
    chosen: set[int] = set()
    remaining = limit
    for size, index in sorted((size, index) for index, (size, _) in enumerate(pieces)):
        if size > remaining:
            break
        remaining -= size
        chosen.add(index)
    names: list[NodeName] = []
    for index, (size, piece) in enumerate(pieces):
        if index in chosen:
            names += _expand_part(piece, size)
        else:
            invalid_parts.append(piece)
    return names, invalid_parts


def _pieces(part: str) -> list[tuple[int, str]]:
    """Return each range of a part with its number of names."""
    group = _GROUP.fullmatch(part)
    if group is None:
        return [(1, parse(part))]
    sized_pieces: list[tuple[int, str]] = []
    for item in group[2].split(","):
        first, last, _ = _bounds(item)
        sized_pieces.append((last - first + 1, f"{group[1]}[{item}]"))
    return sized_pieces


def _bounds(item: str) -> tuple[int, int, int]:
    """Return the range's first number, last number and number of digits."""
    bounds = _RANGE.fullmatch(item)
    if bounds is None:
        raise BadName(f"not a range in a hostlist: {item[:80]!r}")
    first, last = int(bounds[1]), int(bounds[2] or bounds[1])
    if last < first:
        raise BadName(f"a range of a hostlist ends before it begins: {item!r}")
    return first, last, len(bounds[1])


def _expand_part(part: str, limit: int) -> list[NodeName]:
    """Return the part's names.

    For more than `limit` names it stops early: it returns one name more than `limit`.
    """
    group = _GROUP.fullmatch(part)
    if group is None:
        return [parse(part)]
    prefix, body = group.groups()
    names: list[NodeName] = []
    for item in body.split(","):
        first, last, width = _bounds(item)
        last = min(last, first + limit - len(names))
        # The fastest way: ResumeProgram expands every name three times.
        numbers = map(str, range(first, last + 1))
        names += cast("list[NodeName]", [prefix + number.rjust(width, "0") for number in numbers])
        if len(names) > limit:
            break
    return names


def _prefix_width(name: NodeName) -> tuple[str, int]:
    prefix, dash, number = name.rpartition("-")
    return prefix + dash, len(number)


def _number_ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _range_text(first: int, last: int, width: int) -> str:
    low = f"{first:0{width}d}"
    return low if first == last else f"{low}-{last:0{width}d}"


def _ranges_in_order(names: Iterable[NodeName]) -> Iterator[tuple[str, str]]:
    """Yield consecutive names as (prefix, range), in the order given."""
    prefix, width, first, last = "", 0, 0, -1
    for name in names:
        prefix_width = _prefix_width(name)
        number = int(name[len(prefix_width[0]) :])
        if prefix_width == (prefix, width) and number == last + 1:
            last = number
            continue
        if prefix:
            yield prefix, _range_text(first, last, width)
        (prefix, width), first, last = prefix_width, number, number
    if prefix:
        yield prefix, _range_text(first, last, width)


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    texts = []
    for prefix, group in groupby(parts, key=lambda part: part[0]):
        ranges = [text for _, text in group]
        single = len(ranges) == 1 and "-" not in ranges[0]
        texts.append(f"{prefix}{ranges[0]}" if single else f"{prefix}[{','.join(ranges)}]")
    return ",".join(texts)
