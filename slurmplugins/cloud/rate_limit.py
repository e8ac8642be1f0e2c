"""A cloud that is asked no faster than EC2 answers, and EC2's token buckets.

Source of the rates: "Request throttling for the Amazon EC2 API", its tables of request buckets
and of resource buckets. They hold for an account and a region; an account may have been given
more, and others may share it. So a bucket only delays, and EC2 is the judge. A call that it refuses
as one too many has cost nothing: its tokens go back. The caller repeats it, with growing pauses.
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
"""Seconds by which EC2's bucket may be behind ours: it begins to fill when EC2 has our call."""

STEP: Final = 0.2
"""Part of the rate after a refusal by which each call that EC2 lets through raises it."""

LOOK: Final = 0.5
"""Seconds after which a call that waits looks at the line again: it may go faster by then."""

SOON: Final = 0.001
"""Seconds that are not worth a wait."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket that holds so many tokens, and so many come back a second."""

    burst: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens a second that EC2 gives this account: at least `least`, which is what it publishes.

    It goes up by equal steps while EC2 lets calls through, and down by half where EC2 refuses one,
    as TCP does on a line that it shares. At `least` it stays: that is what the account has.
    """

    least: float
    per_second: float
    step: float = 0.0

    @classmethod
    def first(cls, rate: Rate) -> Guess:
        """Begin with a bucket in four seconds: EC2 refuses seven times, and it is down to 2/s."""
        return cls(rate.per_second, max(rate.per_second, rate.burst / 4)).stepped()

    @property
    def settled(self) -> bool:
        """There is nothing to be learned any more."""
        return self.per_second <= self.least

    def granted(self) -> Guess:
        """EC2 let a call through that came at this rate."""
        more = 0.0 if self.settled else self.step
        return replace(self, per_second=self.per_second + more)

    def refused(self) -> Guess:
        """EC2 refused a call that came at this rate."""
        return replace(self, per_second=max(self.least, self.per_second / 2)).stepped()

    def stepped(self) -> Guess:
        """With steps of the rate that it has now."""
        return replace(self, step=self.per_second * STEP)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the line for tokens: its last token is the `until`th. `short`: the line began
    before it.
    """

    until: float
    tokens: float
    short: bool


class Bucket:
    """A line for tokens, first come first served; safe between threads.

    `learns`: the account may have more than this rate, and EC2's answers tell how much.
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
        """Take a place at the end of the line."""
        with self._lock:
            now = self._fill()
            tokens = min(wanted, self._burst)
            if self._taken + self._burst <= self._came:
                self._at = now + LAG
            self._taken += tokens
            return Place(self._taken, tokens, short=self._taken > self._came)

    def wait(self, place: Place) -> float:
        """Seconds until the place's tokens are there, as things stand."""
        with self._lock:
            now = self._fill()
            wait = max(0.0, self._closed_until - now)
            if place.until > self._came:
                missing = (place.until - self._came) / self._guess.per_second
                wait = max(wait, missing + max(0.0, self._at - now))
            return wait

    def granted(self, place: Place) -> None:
        """EC2 has let the call through."""
        with self._lock:
            self._fill()
            self._setbacks = 0
            if place.short:
                self._guess = self._guess.granted()

    def refused(self, place: Place) -> None:
        """EC2 has refused the call: its tokens go to the next in line, which waits a moment."""
        with self._lock:
            now = self._fill()
            self._came = min(self._came + place.tokens, self._taken + self._burst)
            pause = LAG * 2**self._setbacks
            if self._guess.settled:
                self._setbacks += 1
            else:
                pause = place.tokens / self._guess.per_second
            if now >= self._closed_until:  # one of several at once says all that they say
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
"""A bucket of its own, for what RunInstances starts. A fleet draws on CreateFleet's alone."""
DESCRIBE_INSTANCES: Final = Rate(100, 20)
TERMINATE_INSTANCES: Final = Rate(100, 5)
CREATE_TAGS: Final = Rate(100, 10)
OTHER_READS: Final = Rate(50, 10)


class RateLimitedCloud:
    """`cloud.base.Cloud` around another one. `patience` is the longest wait for one call.

    `instances`: what the account is known to have; without it, what EC2 publishes and as much more
    as it gives.
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
        except Throttled:  # by whichever of its buckets: none was drawn on for instances
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
        """Wait until the tokens are there; at the end of our patience EC2 may judge."""
        line = [(bucket, bucket.enter(wanted)) for bucket, wanted in needs]
        until = self._clock.monotonic() + self._patience
        while True:
            wait = max(bucket.wait(place) for bucket, place in line)
            wait = min(wait, LOOK, until - self._clock.monotonic())
            if wait < SOON:
                return [place for _, place in line]
            self._clock.sleep(wait)
