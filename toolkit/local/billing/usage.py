"""The billed uses: runs of instances and sizes of storage, from the usage log."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.local.billing.usage_log import Kind, UsageEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MINIMUM = 60
"""Seconds. "Each time you start a stopped instance we charge a minimum of one minute for usage":
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Stop_Start.html; the same for a launch and for
a volume: https://aws.amazon.com/ec2/pricing/on-demand/ and https://aws.amazon.com/ebs/pricing/"""

HOUR = 3600
SPOT_INTERRUPTION = "Server.SpotInstanceTermination"


@dataclass(frozen=True, slots=True)
class Use:
    """A stretch of time in which a resource is billed for what it was."""

    event: UsageEvent  # with which it began
    tags: Mapping[str, str]  # the resource's latest
    start: int
    end: int | None  # None: it goes on
    minimum_end: int  # billed until then at least, once it has ended
    free: bool = False  # used, and not charged

    def billed_end(self, now: int) -> int:
        """Return the second until which it is billed, as known by now."""
        return now if self.end is None else max(self.end, self.minimum_end)


def uses(events: Iterable[UsageEvent]) -> list[Use]:
    """Return all that is billed, by resource and time."""
    by_resource: dict[str, list[UsageEvent]] = defaultdict(list)
    for event in events:
        by_resource[event.resource_id].append(event)
    return [use for life in by_resource.values() for use in _uses_of_one(life)]


def _uses_of_one(life: Sequence[UsageEvent]) -> Iterator[Use]:
    return _runs(life) if life[0].kind is Kind.INSTANCE else _sizes(life)


def _runs(life: Sequence[UsageEvent]) -> Iterator[Use]:
    """Yield an instance's runs, from `running` to the state after it.

    All other states are not billed:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
    """
    for event, following in pairwise([*life, None]):
        if event is None or event.state != "running":
            continue
        end = following.at if following else None
        interrupted = following is not None and following.reason == SPOT_INTERRUPTION
        in_first_hour = end is not None and end - event.at < HOUR
        # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html
        free = interrupted and in_first_hour
        yield Use(event, life[-1].tags, event.at, end, event.at + MINIMUM, free=free)


def _sizes(life: Sequence[UsageEvent]) -> Iterator[Use]:
    """Yield the times in which storage had one size."""
    minimum_end = life[0].at + MINIMUM
    for event, following in pairwise([*life, None]):
        if event is None or event.state == "deleted":
            continue
        end = following.at if following else None
        is_last = following is None or following.state == "deleted"
        yield Use(event, life[-1].tags, event.at, end, minimum_end if is_last else event.at)
