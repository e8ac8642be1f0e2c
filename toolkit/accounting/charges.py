"""Charges: the smallest lines of a report, each a whole number of micro-dollars."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from toolkit.accounting.days import DayCost
    from toolkit.prices import Price


class Component(StrEnum):
    """A kind of use that an instance's time is charged to, in the order of the report."""

    WORK = "useful work"
    LOST = "lost work"
    BOOT = "boot"
    WAIT = "wait for nodes"
    IDLE_GAP = "idle gap"
    IDLE_TAIL = "idle tail"
    IDLE = "idle"
    UNALLOCATED = "unallocated"
    FAILED_LAUNCH = "failed launch"
    MINIMUM = "minimum charge"
    HEAD = "head node"
    OTHER = "other machines"
    RACK_IDLE = "unallocated rack"
    STORAGE = "storage"
    NETWORK = "network"
    COMMITMENT = "unused commitment"
    REFUND = "spot refund"

    @property
    def about(self) -> str:
        """Return the line's meaning, in one sentence."""
        return _ABOUT[self]


_ABOUT = {
    Component.WORK: "Work of jobs that was kept.",
    Component.LOST: "Work of jobs since their last checkpoint, which was lost.",
    Component.BOOT: "From the first billed second to the job that waited for it, or gave up.",
    Component.WAIT: "Instances that were up, and kept for a job whose other nodes still booted.",
    Component.IDLE_GAP: "Between two jobs, charged to the earlier one.",
    Component.IDLE_TAIL: "From the last job to termination, charged to that job.",
    Component.IDLE: "Instances that no job had or waited for, and idle time of static nodes.",
    Component.UNALLOCATED: "The part of a busy instance that no job used.",
    Component.FAILED_LAUNCH: "Instances that never became nodes, charged to the job that waited.",
    Component.MINIMUM: "The rest of the first minute of instances that lived for less.",
    Component.HEAD: "The head node.",
    Component.OTHER: "Instances that are no nodes: login nodes and image builders.",
    Component.RACK_IDLE: "Capacity of racks that no job held, at the rate of an hour in use.",
    Component.STORAGE: "The shared filesystem, volumes and objects, by their size and time.",
    Component.NETWORK: "The NAT gateway and traffic between zones.",
    Component.COMMITMENT: "What was paid in advance, as far as no instance used it.",
    Component.REFUND: "Spot instances that EC2 interrupted within their first hour cost nothing.",
}


@dataclass(frozen=True, slots=True)
class ChargePrices:
    """The sources of a charge's prices, and the age of the oldest."""

    sources: tuple[PriceSource, ...]
    as_of: int  # epoch second

    @classmethod
    def of(cls, prices: Sequence[Price]) -> ChargePrices:
        """Return the sources in their order of quality."""
        if len(prices) == 1:  # most charges have one
            return _of_one(prices[0].source, prices[0].as_of)
        sources = _in_order(frozenset(price.source for price in prices))
        return cls(sources, min(price.as_of for price in prices))

    def joined(self, other: ChargePrices | None) -> ChargePrices:
        """Return the sources of both, and the age of the oldest."""
        if other is None or other is self:
            return self
        sources = self.sources
        if sources == other.sources:
            if other.as_of <= self.as_of:  # so it is of most charges of a sum
                return other
        else:
            sources = _in_order(frozenset((*sources, *other.sources)))
        return ChargePrices(sources, min(self.as_of, other.as_of))


def joined_prices(items: Iterable[ChargePrices | None]) -> ChargePrices | None:
    """Return the sources of all, and the age of the oldest."""
    joined: ChargePrices | None = None
    for item in items:
        joined = joined if item is None else item.joined(joined)
    return joined


@lru_cache(maxsize=4096)  # a report has few days and very many charges
def _of_one(source: PriceSource, as_of: int) -> ChargePrices:
    return ChargePrices((source,), as_of)


@lru_cache(maxsize=256)
def _in_order(sources: frozenset[PriceSource]) -> tuple[PriceSource, ...]:
    return tuple(source for source in PriceSource if source in sources)


@dataclass(frozen=True, slots=True)
class Charge:
    """Money for one component of one instance."""

    component: Component
    instance_id: str
    attempt: int | None  # DBIndex of the attempt that caused it; None: no attempt did
    micro: int
    seconds: Fraction  # instance time; a part of an instance counts for its share
    price_known: bool = True  # False: `micro` is 0, and the amount is unknown
    prices: ChargePrices | None = field(default=None, compare=False)  # a share has none


@dataclass(frozen=True, slots=True)
class InstanceCost:
    """The charges of one instance within the window; it costs `gross + refund`."""

    instance_id: str
    seconds: int  # billed, within the window
    gross: int  # micro-dollars
    refund: int  # micro-dollars, zero or negative
    prices: tuple[Price, ...]
    charges: tuple[Charge, ...]
    days: tuple[DayCost, ...] = ()  # sum to `gross + refund`

    @property
    def sources(self) -> frozenset[PriceSource]:
        """Return the sources of its prices."""
        return frozenset(price.source for price in self.prices)

    @property
    def charge_prices(self) -> ChargePrices | None:
        """Return the sources of its charges, and the oldest price's age."""
        return joined_prices(charge.prices for charge in self.charges)

    @property
    def has_unknown(self) -> bool:
        """Return whether a part of its cost is unknown."""
        return any(not charge.price_known for charge in self.charges)

    @property
    def net(self) -> int:
        """Return gross less the refund, in micro-dollars."""
        return self.gross + self.refund
