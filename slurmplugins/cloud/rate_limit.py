"""A limit on the rate of calls to EC2, by EC2's token buckets.

Source of the rates: "Request throttling for the Amazon EC2 API", its tables of request buckets
and of resource buckets. The rates hold for an account and a region. An account may have been given
more, and others may share it. So our buckets only delay calls, and EC2 decides. A throttled call
costs nothing: its tokens go back. The caller repeats the call, with growing pauses.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.launch import LaunchRequest, LaunchResult
    from slurmplugins.system.clock import Clock


LAG_SECONDS: Final = 0.2
"""Seconds that EC2's bucket may lag behind ours: it begins to fill when EC2 receives our call."""

STEP_SHARE: Final = 0.2
"""Each accepted call raises the rate by this share of the rate after the last refusal."""

CHECK_SECONDS: Final = 0.5
"""Seconds after which a waiting call looks at the queue again: the rate may have risen."""

NO_WAIT_SECONDS: Final = 0.001
"""Seconds below which a call does not wait."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket's size, and the tokens that come back per second."""

    burst: float
    per_second: float


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """An estimate of the tokens per second that EC2 gives this account.

    It rises by equal steps while EC2 accepts calls, and falls by half when EC2 refuses one. TCP
    does the same on a shared line. At `min_per_second` it stays: the account has that rate.
    """

    min_per_second: float
    """The rate that EC2 publishes; no account has less."""
    per_second: float
    step: float = 0.0
    """Tokens per second that each accepted call adds."""

    @classmethod
    def initial(cls, rate: Rate) -> RateEstimate:
        """Begin with the rate that empties a bucket in four seconds.

        From there, seven refusals bring the rate down to 2/s.
        """
        return cls(rate.per_second, max(rate.per_second, rate.burst / 4)).with_step()

    @property
    def is_final(self) -> bool:
        """Return whether the estimate is final."""
        return self.per_second <= self.min_per_second

    def after_success(self) -> RateEstimate:
        """Return the estimate after EC2 accepted a call at this rate."""
        increase = 0.0 if self.is_final else self.step
        return replace(self, per_second=self.per_second + increase)

    def after_refusal(self) -> RateEstimate:
        """Return the estimate after EC2 refused a call at this rate."""
        return replace(self, per_second=max(self.min_per_second, self.per_second / 2)).with_step()

    def with_step(self) -> RateEstimate:
        """Return the estimate with its step set by the present rate."""
        return replace(self, step=self.per_second * STEP_SHARE)


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A place in the queue for tokens."""

    last_token: float
    """The number of its last token, counted since the bucket was made."""
    tokens: float
    had_to_wait: bool
    """Its last token did not exist yet when the call joined the queue."""


class TokenQueue:
    """A queue for tokens, first come first served. Safe between threads.

    With `adaptive`, the account may have more than this rate, and EC2's answers tell how much.
    """

    def __init__(self, rate: Rate, clock: Clock, *, adaptive: bool = False) -> None:
        self._burst = rate.burst
        self._estimate = (
            RateEstimate.initial(rate)
            if adaptive
            else RateEstimate(rate.per_second, rate.per_second)
        )
        self._clock = clock
        self._tokens_made = rate.burst
        self._tokens_promised = 0.0
        self._filled_at = clock.monotonic()
        self._closed_until = self._filled_at
        self._refusals = 0
        self._lock = threading.Lock()

    @property
    def per_second(self) -> float:
        return self._estimate.per_second

    def join_queue(self, amount: float) -> QueuePlace:
        """Take a place at the end of the queue."""
        with self._lock:
            now = self._fill()
            tokens = min(amount, self._burst)
            if self._tokens_promised + self._burst <= self._tokens_made:
                self._filled_at = now + LAG_SECONDS
            self._tokens_promised += tokens
            return QueuePlace(
                self._tokens_promised, tokens, had_to_wait=self._tokens_promised > self._tokens_made
            )

    def wait(self, place: QueuePlace) -> float:
        """Return the seconds until the place's tokens exist, at the present rate."""
        with self._lock:
            now = self._fill()
            wait = max(0.0, self._closed_until - now)
            if place.last_token > self._tokens_made:
                refill_seconds = (place.last_token - self._tokens_made) / self._estimate.per_second
                wait = max(wait, refill_seconds + max(0.0, self._filled_at - now))
            return wait

    def record_success(self, place: QueuePlace) -> None:
        """Record that EC2 accepted the call."""
        with self._lock:
            self._fill()
            self._refusals = 0
            if place.had_to_wait:
                self._estimate = self._estimate.after_success()

    def record_refusal(self, place: QueuePlace) -> None:
        """Record that EC2 refused the call.

        Its tokens go to the next call in the queue, which waits a moment.
        """
        with self._lock:
            now = self._fill()
            self._tokens_made = min(
                self._tokens_made + place.tokens, self._tokens_promised + self._burst
            )
            pause = LAG_SECONDS * 2**self._refusals
            if self._estimate.is_final:
                self._refusals += 1
            else:
                pause = place.tokens / self._estimate.per_second
            if now >= self._closed_until:  # several refusals at once count as one
                self._estimate = self._estimate.after_refusal()
                self._filled_at = self._closed_until = now + pause

    def _fill(self) -> float:
        now = self._clock.monotonic()
        if now > self._filled_at:
            new_tokens = (now - self._filled_at) * self._estimate.per_second
            self._tokens_made = min(
                self._tokens_made + new_tokens, self._tokens_promised + self._burst
            )
            self._filled_at = now
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

    `patience` is the longest wait for one call, in seconds. At the monotonic time `launch_until`
    each launch's wait ends. `instances` is the account's launch rate, if known. Without it, the
    limit begins at EC2's published rate and learns the true one.
    """

    def __init__(
        self,
        cloud: Cloud,
        clock: Clock,
        *,
        patience: float,
        launch_until: float,
        instances: Rate | None = None,
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._patience = patience
        self._launch_until = launch_until
        self._run = TokenQueue(RUN_INSTANCES, clock)
        self._fleet = TokenQueue(CREATE_FLEET, clock)
        self._instances = TokenQueue(instances or INSTANCES, clock, adaptive=instances is None)
        self._describe = TokenQueue(DESCRIBE_INSTANCES, clock)
        self._terminate = TokenQueue(TERMINATE_INSTANCES, clock)
        self._tags = TokenQueue(CREATE_TAGS, clock)
        self._status = TokenQueue(OTHER_READS, clock)

    def launch(self, request: LaunchRequest, before_call: Callable[[], None]) -> LaunchResult:
        if request.others:
            needs = ((self._fleet, 1), (self._describe, 1), (self._tags, 1))
            self._wait_for_tokens(*needs, until=self._launch_until)
            return self._cloud.launch(request, before_call)
        _, place = self._wait_for_tokens(
            (self._run, 1), (self._instances, len(request.nodes)), until=self._launch_until
        )
        try:
            launched = self._cloud.launch(request, before_call)
        except Throttled:  # by any of EC2's buckets: EC2 took no tokens for instances
            self._instances.record_refusal(place)
            raise
        self._instances.record_success(place)
        return launched

    def retag_nodes(
        self, node_by_id: Mapping[str, NodeName], may_retag: Callable[[str], bool]
    ) -> bool:
        self._wait_for_tokens((self._tags, len(node_by_id)))
        return self._cloud.retag_nodes(node_by_id, may_retag)

    def instances(self) -> tuple[Instance, ...]:
        self._wait_for_tokens((self._describe, 1))
        return self._cloud.instances()

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        self._wait_for_tokens((self._describe, 1), (self._terminate, 1))
        return self._cloud.terminate(ids)

    def health(self) -> tuple[InstanceHealth, ...]:
        self._wait_for_tokens((self._status, 1))
        return self._cloud.health()

    def network_nodes(self, types: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        self._wait_for_tokens((self._status, 1))
        return self._cloud.network_nodes(types)

    def console(self, instance_id: str) -> str:
        self._wait_for_tokens((self._status, 1))
        return self._cloud.console(instance_id)

    def _wait_for_tokens(
        self, *needs: tuple[TokenQueue, float], until: float = math.inf
    ) -> list[QueuePlace]:
        """Wait until the tokens exist, or until our patience ends.

        `until` is a monotonic time. After that the call is made anyway, and EC2 decides. Returns
        the places in the queues.
        """
        places = [(bucket, bucket.join_queue(amount)) for bucket, amount in needs]
        deadline = min(self._clock.monotonic() + self._patience, until)
        while True:
            wait = max(bucket.wait(place) for bucket, place in places)
            wait = min(wait, CHECK_SECONDS, deadline - self._clock.monotonic())
            if wait < NO_WAIT_SECONDS:
                return [place for _, place in places]
            self._clock.sleep(wait)
