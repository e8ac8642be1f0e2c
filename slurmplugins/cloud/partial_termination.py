"""Termination of a list of instances when EC2 refuses the whole call because of a few."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_CALLS: Final = 64
"""Calls for one list. Enough to find five refused ids among 200 if EC2 names none of them."""

_IDS: Final = re.compile(r"\bi-[0-9a-z]+")


def terminate_all_possible(
    ids: Sequence[str], terminate: Callable[[Sequence[str]], frozenset[str]]
) -> tuple[frozenset[str], dict[str, CloudError]]:
    """Terminate as many of these instances as EC2 allows.

    `terminate` terminates a list and returns the terminated ids. It does the only I/O here.
    Returns the terminated ids, and EC2's error for each refused id. If the error names ids, the
    next call leaves them out. Otherwise the list is halved, largest parts first. So a limited
    number of calls terminates as many instances as possible.
    Raises errors that do not judge the ids themselves, such as Throttled.
    """
    terminated_ids: frozenset[str] = frozenset()
    errors_by_id: dict[str, CloudError] = {}
    groups = deque([list(ids)] if ids else [])
    for call_index in range(MAX_CALLS):
        if not groups:
            break
        group = groups.popleft()
        try:
            terminated_ids |= terminate(group)
        except CloudError as error:
            if not error.resolves_launch:
                raise
            last_call = call_index == MAX_CALLS - 1
            refuses_all = len(group) == 1 or last_call
            refused_ids = group if refuses_all else _named_ids(error, group)
            errors_by_id |= dict.fromkeys(refused_ids, error)
            groups += _smaller_groups(group, refused_ids)
            if last_call:
                errors_by_id |= {
                    item: error for remaining_group in groups for item in remaining_group
                }
    return terminated_ids, errors_by_id


def _named_ids(error: CloudError, group: Sequence[str]) -> list[str]:
    words = set(_IDS.findall(error.message))
    return [item for item in group if item in words]


def _smaller_groups(group: Sequence[str], refused_ids: Sequence[str]) -> list[list[str]]:
    """Return the next lists to try in place of a refused one."""
    remaining_ids = [item for item in group if item not in refused_ids]
    if refused_ids:
        return [remaining_ids] if remaining_ids else []
    middle = len(remaining_ids) // 2
    return [remaining_ids[:middle], remaining_ids[middle:]]
