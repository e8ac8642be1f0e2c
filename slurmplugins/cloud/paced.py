"""A cloud that is asked no faster than EC2 answers.

EC2's rates hold for an account and a region; an account may have been given more, and others may
share it. So a bucket only delays, and EC2 is the judge. A call that it refuses as one too many has
cost nothing: its tokens go back. The caller repeats it, with growing pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.buckets import Bucket, Rate
from slurmplugins.errors import Throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.cloud.buckets import Place
    from slurmplugins.health import Health
    from slurmplugins.model import Instance, Launched, LaunchRequest
    from slurmplugins.names import NodeName


RUN_INSTANCES: Final = Rate(5, 2)
CREATE_FLEET: Final = Rate(50, 5)
INSTANCES: Final = Rate(1000, 2)
"""A bucket of its own, for what RunInstances starts. A fleet draws on CreateFleet's alone."""
DESCRIBE_INSTANCES: Final = Rate(100, 20)
TERMINATE_INSTANCES: Final = Rate(100, 5)
CREATE_TAGS: Final = Rate(100, 10)
OTHER_READS: Final = Rate(50, 10)

LOOK: Final = 0.5
"""Seconds after which a call that waits looks at the line again: it may go faster by then."""

SOON: Final = 0.001
"""Seconds that are not worth a wait."""


class PacedCloud:
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

    def health(self) -> tuple[Health, ...]:
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
