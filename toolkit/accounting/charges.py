"""Charges: the smallest lines of a report, each a whole number of micro-dollars."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    from toolkit.prices import Price, PriceSource


class Component(StrEnum):
    """What a machine's time went to. The order is the order of the report."""

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
        """What the line means, in one sentence."""
        return _ABOUT[self]


_ABOUT = {
    Component.WORK: "A job ran, and what it did counted.",
    Component.LOST: "A job ran, and what it did since its last checkpoint is gone.",
    Component.BOOT: "From launch to the first job, charged to that job.",
    Component.IDLE_GAP: "Between two jobs, charged to the earlier one.",
    Component.IDLE_TAIL: "From the last job to termination, charged to that job.",
    Component.UNALLOCATED: "The part of a busy machine that no job had.",
    Component.FAILED_LAUNCH: "Machines that ended without having run a job.",
    Component.MINIMUM: "The rest of the first minute of machines that lived for less.",
    Component.HEAD: "The head node.",
    Component.OTHER: "Machines with the cluster's tag that are no nodes, such as image builders.",
    Component.REFUND: "Spot machines that EC2 took back within their first hour cost nothing.",
}


@dataclass(frozen=True, slots=True)
class Charge:
    """Money for one component of one instance, and the attempt that caused it, if one did.

    `seconds` is machine time, a part of a machine counting for its share.
    """

    component: Component
    instance_id: str
    attempt: int | None
    micro: int
    seconds: Fraction


@dataclass(frozen=True, slots=True)
class InstanceCost:
    """All charges of one instance within the window; `gross + refund` is what it costs."""

    instance_id: str
    seconds: int
    gross: int
    refund: int
    prices: tuple[Price, ...]
    charges: tuple[Charge, ...]

    @property
    def sources(self) -> frozenset[PriceSource]:
        """Where its prices are from."""
        return frozenset(price.source for price in self.prices)

    @property
    def net(self) -> int:
        """Gross less the refund."""
        return self.gross + self.refund
