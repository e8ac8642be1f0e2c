"""EC2's request rates: the token buckets of its guide on throttling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = {
    "RunInstances": (5.0, 2.0),
    "CreateFleet": (50.0, 5.0),
    "CreateTags": (100.0, 10.0),
    "TerminateInstances": (100.0, 5.0),
    "DescribeInstances": (100.0, 20.0),
}
"""The calls at once, and the further calls a second.

DescribeInstances: with a filter.
"""

INSTANCES = {"RunInstances": (1000.0, 2.0), "TerminateInstances": (1000.0, 20.0)}
"""The instances at once, and the further instances a second, of these calls."""


@dataclass
class RequestRates:
    """A counter of calls that refuses those that come too soon."""

    clock: Callable[[], float]
    enabled: bool = False
    _levels: dict[str, tuple[float, float]] = field(default_factory=dict)

    def allows(self, action: str, instances: int) -> bool:
        if not self.enabled:
            return True
        if not self._take(action, 1, CALLS[action]):
            return False
        return action not in INSTANCES or self._take(f"{action} of", instances, INSTANCES[action])

    def _take(self, bucket: str, wanted: float, rate: tuple[float, float]) -> bool:
        most, per_second = rate
        now = self.clock()
        level, at = self._levels.get(bucket, (most, now))
        level = min(most, level + (now - at) * per_second)
        enough = level >= wanted
        self._levels[bucket] = (level - wanted if enough else level, now)
        return enough
