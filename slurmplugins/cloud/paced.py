"""A cloud that is asked no faster than EC2 says it answers.

Source of the rates: "Request throttling for the Amazon EC2 API", its tables of request buckets
and of resource buckets. They hold for an account and a region; an account may have been given
more, and others may share it. So a bucket only delays: what would have to wait longer than makes
sense is asked at once, and EC2 is the judge. Its throttles are answered by the caller, with
growing pauses.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.health import Health
    from slurmplugins.model import Instance, Launched, LaunchRequest
    from slurmplugins.names import NodeName


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket that holds so many tokens, and so many come back a second."""

    burst: float
    per_second: float


RUN_INSTANCES: Final = Rate(5, 2)
CREATE_FLEET: Final = Rate(50, 5)
INSTANCES: Final = Rate(1000, 2)
"""Instances that RunInstances starts draw on a bucket of their own."""
DESCRIBE_INSTANCES: Final = Rate(100, 20)
TERMINATE_INSTANCES: Final = Rate(100, 5)
CREATE_TAGS: Final = Rate(100, 10)
OTHER_READS: Final = Rate(50, 10)


class Bucket:
    """Hands out times rather than refusals; safe between threads."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = rate.burst
        self._at = clock.monotonic()
        self._lock = threading.Lock()

    def take(self, wanted: float, patience: float) -> float:
        """Take tokens, and return the seconds to wait until they are there.

        0 and nothing taken when that would be longer than `patience`.
        """
        wanted = min(wanted, self._rate.burst)
        with self._lock:
            now = self._clock.monotonic()
            came_back = (now - self._at) * self._rate.per_second
            self._tokens, self._at = min(self._rate.burst, self._tokens + came_back), now
            wait = max(0.0, (wanted - self._tokens) / self._rate.per_second)
            if wait > patience:
                return 0.0
            self._tokens -= wanted  # below zero: those who come next wait behind this one
            return wait


class PacedCloud:
    """`cloud.base.Cloud` around another one. `patience` is the longest wait for one call."""

    def __init__(
        self, cloud: Cloud, clock: Clock, *, patience: float, instances: Rate = INSTANCES
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._patience = patience
        self._run = Bucket(RUN_INSTANCES, clock)
        self._fleet = Bucket(CREATE_FLEET, clock)
        self._instances = Bucket(instances, clock)
        self._describe = Bucket(DESCRIBE_INSTANCES, clock)
        self._terminate = Bucket(TERMINATE_INSTANCES, clock)
        self._tags = Bucket(CREATE_TAGS, clock)
        self._status = Bucket(OTHER_READS, clock)

    def launch(self, request: LaunchRequest, intend: Callable[[], None]) -> Launched:
        if request.others:
            self._pace((self._fleet, 1), (self._describe, 1), (self._tags, 1))
        else:
            self._pace((self._run, 1), (self._instances, len(request.nodes)))
        return self._cloud.launch(request, intend)

    def give(self, names: Mapping[str, NodeName], may: Callable[[str], bool]) -> bool:
        self._pace((self._tags, len(names)))
        return self._cloud.give(names, may)

    def instances(self) -> tuple[Instance, ...]:
        self._pace((self._describe, 1))
        return self._cloud.instances()

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        self._pace((self._describe, 1), (self._terminate, 1))
        return self._cloud.terminate(ids)

    def health(self) -> tuple[Health, ...]:
        self._pace((self._status, 1))
        return self._cloud.health()

    def console(self, instance_id: str) -> str:
        self._pace((self._status, 1))
        return self._cloud.console(instance_id)

    def _pace(self, *needs: tuple[Bucket, float]) -> None:
        wait = max(bucket.take(wanted, self._patience) for bucket, wanted in needs)
        if wait:
            self._clock.sleep(wait)
