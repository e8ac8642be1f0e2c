"""An event of the log as lines of JSON, none of them long, and none of its nodes or jobs left out.

What a long event has much of, lists and hostlists, is spread over several lines, numbered by
`part`; what is short is repeated on each, so that every line can be understood alone. Free text
that is too long is cut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

from slurmplugins import names
from slurmplugins.errors import BadName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST: Final = 4000
"""A line stays below what one append writes at once, so that processes don't mix their lines."""

_SHORT: Final = 800
"""Characters of a value that may stand on every line of an event."""

_TEXT: Final = 400
"""Characters kept of free text where there is too much of it."""

_NUMBERED: Final = 20
"""Characters that the number of a line takes."""

Record: TypeAlias = "Mapping[str, object]"


def of(record: Record) -> Iterator[str]:
    """The lines, without their ends."""
    line = _json(record)
    if len(line) <= LONGEST:
        yield line
        return
    parts = list(_parts(_cut(record)))
    for number, part in enumerate(parts, 1):
        yield _json({**part, "part": number} if len(parts) > 1 else part)


def _parts(record: Record) -> Iterator[Record]:
    """Records that fit: each has its share of what is long, and all that is short."""
    if len(_json(record)) <= LONGEST - _NUMBERED:
        yield record
        return
    halves = {key: pair for key, value in record.items() if (pair := _halves(value))}
    if not halves:
        yield _cut(record)
        return
    for side in (0, 1):
        yield from _parts({**record, **{key: pair[side] for key, pair in halves.items()}})


def _halves(value: object) -> tuple[object, object] | None:
    """The two halves of a long list or hostlist."""
    if isinstance(value, list | tuple) and len(value) > 1 and len(_json(value)) > _SHORT:
        middle = len(value) // 2
        return value[:middle], value[middle:]
    if isinstance(value, str) and len(value) > _SHORT:
        try:
            nodes = names.expand(value)
        except BadName:
            return None
        middle = len(nodes) // 2
        return names.compress(nodes[:middle]), names.compress(nodes[middle:])
    return None


def _cut(record: Record) -> Record:
    """With the free text that is too long cut, and all else that is and has no halves."""
    return {
        key: value if len(_json(value)) <= _SHORT or _halves(value) else str(value)[:_TEXT]
        for key, value in record.items()
    }


def _json(value: object) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))
