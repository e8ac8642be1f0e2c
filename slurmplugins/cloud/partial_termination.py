"""Ends instances of which EC2 refuses the whole call because of a few. Pure but for the call."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_CALLS: Final = 64
"""For one list: enough to find five refused among two hundred, where EC2 names none of them."""

_IDS: Final = re.compile(r"\bi-[0-9a-z]+")


def ended(
    ids: Sequence[str], end: Callable[[Sequence[str]], frozenset[str]]
) -> tuple[frozenset[str], dict[str, CloudError]]:
    """Return the ids that are over, and EC2's word on each that it refuses to end.

    An instance that the refusal names is left out; else the list is halved, widest parts first, so
    that a bounded number of calls ends as many as can be. Raises what is no judgement of the ids.
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
    """The lists to ask for next in place of one that was refused."""
    rest = [item for item in group if item not in refused]
    if refused:
        return [rest] if rest else []
    middle = len(rest) // 2
    return [rest[:middle], rest[middle:]]
