"""Runaway jobs: slurmdbd has their start, and never learned of their end.

slurmctld lost its state, or died before it told slurmdbd. Such a row would be charged for
its node for ever. Slurm gives no resource twice. So the job had ended when another attempt
got what it had: its own next attempt, or a job that did not fit beside it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.accounting.attempts import jobs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.attempt_instances import Usage
    from toolkit.accounting.attempts import Attempt


def ends_of_runaways(
    attempts: Iterable[Attempt], usages: Mapping[str, Sequence[Usage]]
) -> dict[int, int]:
    """Return the latest end of each runaway attempt, by DBIndex.

    A suspended job is none: slurmctld may have given its node to another one.
    """
    attempts = list(attempts)
    open_keys = {item.key for item in attempts if item.ended is None and item.state == "RUNNING"}
    if not open_keys:
        return {}
    ends = _next_attempts(attempts, open_keys)
    for instance_usages in usages.values():
        if any(usage.attempt in open_keys for usage in instance_usages):
            for key, end in _displaced(instance_usages, open_keys):
                ends[key] = min(ends.get(key, end), end)
    return ends


def with_ends(attempts: Iterable[Attempt], ends: Mapping[int, int]) -> list[Attempt]:
    """Return the attempts, the runaway ones with their ends."""
    return [
        replace(attempt, ended=ends[attempt.key]) if attempt.key in ends else attempt
        for attempt in attempts
    ]


def _next_attempts(attempts: Iterable[Attempt], open_keys: set[int]) -> dict[int, int]:
    """Return the ends of attempts whose job has begun another one."""
    open_ids = {attempt.job_id for attempt in attempts if attempt.key in open_keys}
    ends = {}
    for job in jobs_of(attempt for attempt in attempts if attempt.job_id in open_ids):
        for earlier, later in pairwise(job):
            if earlier.key in open_keys and later.submitted is not None:
                ends[earlier.key] = max(later.submitted, earlier.started or 0)
    return ends


def _displaced(usages: Sequence[Usage], open_keys: set[int]) -> Iterable[tuple[int, int]]:
    """Yield open attempts for which a later one left no room."""
    active: list[Usage] = []
    for usage in sorted(usages, key=lambda item: (item.start, item.attempt)):
        active = [item for item in active if item.end > usage.start]
        active.append(usage)
        earlier = [
            item for item in active if item.attempt in open_keys and item.start < usage.start
        ]
        for item in earlier:
            if sum(other.share for other in active) > 1:
                active.remove(item)
                yield item.attempt, usage.start
