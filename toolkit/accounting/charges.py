"""Charges: the smallest lines of a report, each a whole number of micro-dollars."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    from toolkit.prices import Price, PriceSource


class Component(StrEnum):
    """A kind of use that an instance's time is charged to, in the order of the report."""

    WORK = "useful work"
    LOST = "lost work"
    BOOT = "boot"
    IDLE_GAP = "idle gap"
    IDLE_TAIL = "idle tail"
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
    Component.BOOT: "From launch to the first job, charged to that job.",
    Component.IDLE_GAP: "Between two jobs, charged to the earlier one.",
    Component.IDLE_TAIL: "From the last job to termination, charged to that job.",
    Component.UNALLOCATED: "The part of a busy instance that no job used.",
    Component.FAILED_LAUNCH: "Instances that ended without having run a job.",
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


@dataclass(frozen=True, slots=True)
class InstanceCost:
    """The charges of one instance within the window; it costs `gross + refund`."""

    instance_id: str
    seconds: int  # billed, within the window
    gross: int  # micro-dollars
    refund: int  # micro-dollars, zero or negative
    prices: tuple[Price, ...]
    charges: tuple[Charge, ...]

    @property
    def sources(self) -> frozenset[PriceSource]:
        """Return the sources of its prices."""
        return frozenset(price.source for price in self.prices)

    @property
    def net(self) -> int:
        """Return gross less the refund, in micro-dollars."""
        return self.gross + self.refund
