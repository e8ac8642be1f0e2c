"""Things that cost money: instances from launch to end, racks' nodes, resources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slurmplugins.model.instance import EndCause
from toolkit.prices import PriceQuery

if TYPE_CHECKING:
    from decimal import Decimal

HEAD_POOL = "head"
NEVER_UP = frozenset({EndCause.RESUME_FAILED, EndCause.BOOT_FAILED, EndCause.LAUNCH_FAILED})
"""End causes of failed launches. A job may have run before Slurm gave up, and then sacct has it."""


Stop = tuple[int, int | None]
"""When an instance stopped, rounded up, and when EC2 started it again, None until then."""


class Kind(StrEnum):
    """The kind of a thing that costs money; the report shows it as lifecycle."""

    INSTANCE = "instance"
    RACK = "rack"
    """A node of one's own, with an amortised rate."""
    STORAGE = "storage"
    NETWORK = "network"
    COMMITMENT = "commitment"
    """What was paid in advance, as far as no instance used it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance of the cluster. Times are whole seconds since the epoch.

    A rack's node and a resource have the same form, and another kind.
    """

    instance_id: str
    node: str  # empty unless its tags name it
    pool: str
    instance_type: str
    zone: str
    spot: bool
    launched: int  # rounded down
    ended: int | None  # rounded up; None: still running
    end_cause: str
    tag_price: Decimal | None  # US dollars an hour
    end_seen: bool = True  # False: nobody saw the end, and `ended` is at most a later notice of it
    running: int | None = None  # first seen in EC2's state `running`, rounded down
    seen_at: int | None = None  # last seen alive, where nobody saw its end
    static: bool = False  # its node always has an instance
    stops: tuple[Stop, ...] = ()  # in order, and not billed
    powered_down: int | None = None  # when Slurm had powered its node down, by slurmdbd
    kind: Kind = Kind.INSTANCE

    @property
    def is_head(self) -> bool:
        """Return whether it is the head node, whose cost no job causes."""
        return self.pool == HEAD_POOL

    @property
    def lifecycle(self) -> str:
        """Return spot or on-demand; for what is no instance, its kind."""
        if self.kind is not Kind.INSTANCE:
            return self.kind.value
        return "spot" if self.spot else "on-demand"

    @property
    def billed_from(self) -> int:
        """Return the second from which EC2 bills it: `pending` costs nothing.

        The first pass runs on the head itself, minutes after the head's start. So it proves
        nothing of the head, and a head is billed from its launch.
        """
        return self.launched if self.running is None or self.is_head else self.running

    @property
    def interrupted(self) -> bool:
        """Return whether EC2 itself ended it by an interruption."""
        return self.spot and self.end_cause == EndCause.INTERRUPTION

    @property
    def taken(self) -> bool:
        """Return whether EC2 took it by an interruption.

        Its jobs may have stopped after the notice, and we ended it first. EC2 refunds only what it
        ends itself.
        """
        return self.interrupted or (self.spot and self.end_cause == EndCause.NOTICE)

    @property
    def starts(self) -> tuple[int, ...]:
        """Return the launch, and each later start."""
        return (self.launched, *(start for _, start in self.stops if start is not None))

    def running_spans(self, end: int) -> list[tuple[int, int]]:
        """Return the spans from a start to a stop, or the end."""
        spans = []
        start = self.billed_from
        for stopped_at, started_at in self.stops:
            stop = max(stopped_at, start)
            if stop >= end:
                break
            if start < stop:
                spans.append((start, stop))
            start = end if started_at is None else max(started_at, stop)
        return [*spans, (start, end)] if start < end or not spans else spans

    def lived_in(self, since: int, until: int) -> bool:
        """Return whether it lived in a second of since … until."""
        return self.launched < until and (self.ended is None or self.ended > since)

    @property
    def never_ran(self) -> bool:
        """Return whether its launch failed in EC2, which bills nothing then."""
        return self.end_cause == EndCause.LAUNCH_FAILED and self.running is None

    def price_query(self) -> PriceQuery:
        """Return its query to the price book."""
        return PriceQuery(
            self.instance_type,
            self.zone,
            self.spot,
            self.tag_price,
            self.launched,
            self.instance_id,
            self.pool,
        )
