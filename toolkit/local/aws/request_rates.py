"""EC2's request rates: token buckets per action, as the EC2 developer guide publishes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY = 0
REFILL = 1

# (bucket size, tokens a second), "Request throttling for the Amazon EC2 API"
UNFILTERED = (50.0, 10.0)
FILTERED = (100.0, 20.0)
MUTATING = (50.0, 5.0)
ACTIONS = {
    "RunInstances": (5.0, 2.0),
    "StartInstances": (5.0, 2.0),
    "TerminateInstances": (100.0, 5.0),
    "CreateTags": (100.0, 10.0),
    "DescribeSpotPriceHistory": (100.0, 20.0),
    "RequestSpotInstances": (50.0, 3.0),
    "RequestSpotFleet": (50.0, 3.0),
}
# Instances a call starts or ends draw on a second bucket.
RESOURCES = {
    "RunInstances": (1000.0, 2.0),
    "StartInstances": (1000.0, 2.0),
    "StopInstances": (1000.0, 20.0),
    "TerminateInstances": (1000.0, 20.0),
}
_READS = ("Describe", "Get", "List", "Search")


@dataclass(slots=True)
class TokenBucket:
    """Tokens that come back at a steady rate."""

    size: float
    refill: float
    tokens: float
    refilled_at: float

    def spend(self, count: float, now: float) -> bool:
        """Take the tokens if there are enough; return whether there were.

        A clock that went back changes nothing.
        """
        self.tokens = min(self.size, self.tokens + max(0.0, now - self.refilled_at) * self.refill)
        self.refilled_at = now
        if self.tokens < count:
            return False
        self.tokens -= count
        return True


class Throttle:
    """Decides whether a request comes too soon."""

    def __init__(self, clock: Callable[[], float], *, enabled: bool) -> None:
        """Begin with every bucket full."""
        self._clock = clock
        self.enabled = enabled
        self._buckets: dict[str, TokenBucket] = {}

    def allows(self, region: str, action: str, *, filtered: bool, resources: int) -> bool:
        """Count one request; `resources` is how many instances it is about."""
        if not self.enabled:
            return True
        name, rate = _bucket_of(action, filtered=filtered)
        if not self._bucket(f"{region}/{name}", rate).spend(1, self._clock()):
            return False
        rate = RESOURCES.get(action, (0.0, 0.0))
        if not rate[CAPACITY]:
            return True
        bucket = self._bucket(f"{region}/{action}/resources", rate)
        return bucket.spend(resources, self._clock())

    def _bucket(self, name: str, rate: tuple[float, float]) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = TokenBucket(rate[CAPACITY], rate[REFILL], rate[CAPACITY], self._clock())
            self._buckets[name] = bucket
        return bucket


def _bucket_of(action: str, *, filtered: bool) -> tuple[str, tuple[float, float]]:
    if action in ACTIONS:
        return action, ACTIONS[action]
    if action.startswith(_READS):
        return (f"{action}/filtered", FILTERED) if filtered else (action, UNFILTERED)
    return action, MUTATING
