"""Charges: the smallest lines of a report, each a whole number of micro-dollars."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    from toolkit.accounting.days import DayCost
    from toolkit.prices import Price, PriceSource


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
    Component.REFUND: "Spot instances that EC2 interrupted within their first hour cost nothing.",
}


@dataclass(frozen=True, slots=True)
class Charge:
    """Money for one component of one instance."""

    component: Component
    instance_id: str
    attempt: int | None  # DBIndex of the attempt that caused it; None: no attempt did
    micro: int
    seconds: Fraction  # instance time; a part of an instance counts for its share
    price_known: bool = True  # False: `micro` is 0, and the amount is unknown


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
    def has_unknown(self) -> bool:
        """Return whether a part of its cost is unknown."""
        return any(not charge.price_known for charge in self.charges)

    @property
    def net(self) -> int:
        """Return gross less the refund, in micro-dollars."""
        return self.gross + self.refund
