"""A limit on the rate of calls to EC2, by EC2's token buckets.

Source of the rates: "Request throttling for the Amazon EC2 API", its tables of request buckets
and of resource buckets. The rates hold for an account and a region. An account may have been given
more, and others may share it. So our buckets only delay calls, and EC2 decides. A throttled call
costs nothing: its tokens go back. The caller repeats the call, with growing pauses.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.launch import Launched, LaunchRequest
    from slurmplugins.system.clock import Clock


LAG: Final = 0.2
"""Seconds that EC2's bucket may lag behind ours: it begins to fill when EC2 receives our call."""

STEP: Final = 0.2
"""Each accepted call raises the rate by this share of the rate after the last refusal."""

LOOK: Final = 0.5
"""Seconds after which a waiting call looks at the queue again: the rate may have risen."""

SOON: Final = 0.001
"""Seconds below which a call does not wait."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket's size, and the tokens that come back per second."""

    burst: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Guess:
    """An estimate of the tokens per second that EC2 gives this account.

    It rises by equal steps while EC2 accepts calls, and falls by half when EC2 refuses one. TCP
    does the same on a shared line. At `least` it stays: the account has that rate.
    """

    least: float
    """The rate that EC2 publishes; no account has less."""
    per_second: float
    step: float = 0.0
    """Tokens per second that each accepted call adds."""

    @classmethod
    def first(cls, rate: Rate) -> Guess:
        """Begin with the rate that empties a bucket in four seconds.

        From there, seven refusals bring the rate down to 2/s.
        """
        return cls(rate.per_second, max(rate.per_second, rate.burst / 4)).stepped()

    @property
    def settled(self) -> bool:
        """Return whether the estimate is final."""
        return self.per_second <= self.least

    def granted(self) -> Guess:
        """Return the estimate after EC2 accepted a call at this rate."""
        more = 0.0 if self.settled else self.step
        return replace(self, per_second=self.per_second + more)

    def refused(self) -> Guess:
        """Return the estimate after EC2 refused a call at this rate."""
        return replace(self, per_second=max(self.least, self.per_second / 2)).stepped()

    def stepped(self) -> Guess:
        """Return the estimate with its step set by the present rate."""
        return replace(self, step=self.per_second * STEP)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the queue for tokens."""

    until: float
    """The number of its last token, counted since the bucket was made."""
    tokens: float
    short: bool
    """Its last token did not exist yet when the call joined the queue."""


class Bucket:
    """A queue for tokens, first come first served. Safe between threads.

    With `learns`, the account may have more than this rate, and EC2's answers tell how much.
    """

    def __init__(self, rate: Rate, clock: Clock, *, learns: bool = False) -> None:
        self._burst = rate.burst
        self._guess = Guess.first(rate) if learns else Guess(rate.per_second, rate.per_second)
        self._clock = clock
        self._came = rate.burst
        self._taken = 0.0
        self._at = clock.monotonic()
        self._closed_until = self._at
        self._setbacks = 0
        self._lock = threading.Lock()

    @property
    def per_second(self) -> float:
        return self._guess.per_second

    def enter(self, wanted: float) -> Place:
        """Take a place at the end of the queue."""
        with self._lock:
            now = self._fill()
            tokens = min(wanted, self._burst)
            if self._taken + self._burst <= self._came:
                self._at = now + LAG
            self._taken += tokens
            return Place(self._taken, tokens, short=self._taken > self._came)

    def wait(self, place: Place) -> float:
        """Return the seconds until the place's tokens exist, at the present rate."""
        with self._lock:
            now = self._fill()
            wait = max(0.0, self._closed_until - now)
            if place.until > self._came:
                missing = (place.until - self._came) / self._guess.per_second
                wait = max(wait, missing + max(0.0, self._at - now))
            return wait

    def granted(self, place: Place) -> None:
        """Record that EC2 accepted the call."""
        with self._lock:
            self._fill()
            self._setbacks = 0
            if place.short:
                self._guess = self._guess.granted()

    def refused(self, place: Place) -> None:
        """Record that EC2 refused the call.

        Its tokens go to the next call in the queue, which waits a moment.
        """
        with self._lock:
            now = self._fill()
            self._came = min(self._came + place.tokens, self._taken + self._burst)
            pause = LAG * 2**self._setbacks
            if self._guess.settled:
                self._setbacks += 1
            else:
                pause = place.tokens / self._guess.per_second
            if now >= self._closed_until:  # several refusals at once count as one
                self._guess = self._guess.refused()
                self._at = self._closed_until = now + pause

    def _fill(self) -> float:
        now = self._clock.monotonic()
        if now > self._at:
            more = (now - self._at) * self._guess.per_second
            self._came = min(self._came + more, self._taken + self._burst)
            self._at = now
        return now


RUN_INSTANCES: Final = Rate(5, 2)
CREATE_FLEET: Final = Rate(50, 5)
INSTANCES: Final = Rate(1000, 2)
"""A bucket of its own for instances that RunInstances launches. A fleet uses CreateFleet's only."""
DESCRIBE_INSTANCES: Final = Rate(100, 20)
TERMINATE_INSTANCES: Final = Rate(100, 5)
CREATE_TAGS: Final = Rate(100, 10)
OTHER_READS: Final = Rate(50, 10)


class RateLimitedCloud:
    """A `cloud.port.Cloud` that delays the calls to another one.

    `patience` is the longest wait for one call, in seconds. `instances` is the account's launch
    rate, if known. Without it, the limit begins at EC2's published rate and learns the true one.
    """

    def __init__(
        self, cloud: Cloud, clock: Clock, *, patience: float, instances: Rate | None = None
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._patience = patience
        self._run = Bucket(RUN_INSTANCES, clock)
        self._fleet = Bucket(CREATE_FLEET, clock)
        self._instances = Bucket(instances or INSTANCES, clock, learns=instances is None)
        self._describe = Bucket(DESCRIBE_INSTANCES, clock)
        self._terminate = Bucket(TERMINATE_INSTANCES, clock)
        self._tags = Bucket(CREATE_TAGS, clock)
        self._status = Bucket(OTHER_READS, clock)

    def launch(self, request: LaunchRequest, intend: Callable[[], None]) -> Launched:
        if request.others:
            self._pace((self._fleet, 1), (self._describe, 1), (self._tags, 1))
            return self._cloud.launch(request, intend)
        _, place = self._pace((self._run, 1), (self._instances, len(request.nodes)))
        try:
            launched = self._cloud.launch(request, intend)
        except Throttled:  # by any of EC2's buckets: EC2 took no tokens for instances
            self._instances.refused(place)
            raise
        self._instances.granted(place)
        return launched

    def give(self, names: Mapping[str, NodeName], may: Callable[[str], bool]) -> bool:
        self._pace((self._tags, len(names)))
        return self._cloud.give(names, may)

    def instances(self) -> tuple[Instance, ...]:
        self._pace((self._describe, 1))
        return self._cloud.instances()

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        self._pace((self._describe, 1), (self._terminate, 1))
        return self._cloud.terminate(ids)

    def health(self) -> tuple[InstanceHealth, ...]:
        self._pace((self._status, 1))
        return self._cloud.health()

    def console(self, instance_id: str) -> str:
        self._pace((self._status, 1))
        return self._cloud.console(instance_id)

    def _pace(self, *needs: tuple[Bucket, float]) -> list[Place]:
        """Wait until the tokens exist, or until our patience ends.

        After that the call is made anyway, and EC2 decides. Returns the places in the queues.
        """
        line = [(bucket, bucket.enter(wanted)) for bucket, wanted in needs]
        until = self._clock.monotonic() + self._patience
        while True:
            wait = max(bucket.wait(place) for bucket, place in line)
            wait = min(wait, LOOK, until - self._clock.monotonic())
            if wait < SOON:
                return [place for _, place in line]
            self._clock.sleep(wait)
