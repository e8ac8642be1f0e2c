"""Termination of a list of instances when EC2 refuses the whole call because of a few."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_CALLS: Final = 64
"""Calls for one list. Enough to find five refused ids among 200 if EC2 names none of them."""

_IDS: Final = re.compile(r"\bi-[0-9a-z]+")


def ended(
    ids: Sequence[str], end: Callable[[Sequence[str]], frozenset[str]]
) -> tuple[frozenset[str], dict[str, CloudError]]:
    """Terminate as many of these instances as EC2 allows.

    `end` terminates a list and returns the terminated ids. It does the only I/O here.
    Returns the terminated ids, and EC2's error for each refused id. If the error names ids, the
    next call leaves them out. Otherwise the list is halved, largest parts first. So a limited
    number of calls terminates as many instances as possible.
    Raises errors that do not judge the ids themselves, such as Throttled.
    """
    over: frozenset[str] = frozenset()
    kept: dict[str, CloudError] = {}
    groups = deque([list(ids)] if ids else [])
    for again in range(MOST_CALLS):
        if not groups:
            break
        group = groups.popleft()
        try:
            over |= end(group)
        except CloudError as error:
            if not error.settles:
                raise
            last_call = again == MOST_CALLS - 1
            alone = len(group) == 1 or last_call
            refused = group if alone else _named(error, group)
            kept |= dict.fromkeys(refused, error)
            groups += _parts(group, refused)
            if last_call:
                kept |= {item: error for left in groups for item in left}
    return over, kept


def _named(error: CloudError, group: Sequence[str]) -> list[str]:
    words = set(_IDS.findall(error.message))
    return [item for item in group if item in words]


def _parts(group: Sequence[str], refused: Sequence[str]) -> list[list[str]]:
    """Return the next lists to try in place of a refused one."""
    rest = [item for item in group if item not in refused]
    if refused:
        return [rest] if rest else []
    middle = len(rest) // 2
    return [rest[:middle], rest[middle:]]
