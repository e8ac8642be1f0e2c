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
    """A job ran, and what it did counted."""
    LOST = "lost work"
    """A job ran, and what it did since its last checkpoint is gone."""
    BOOT = "boot"
    """From launch to the first job."""
    IDLE_GAP = "idle gap"
    """Between two jobs."""
    IDLE_TAIL = "idle tail"
    """After the last job, until termination."""
    UNALLOCATED = "unallocated"
    """The part of a busy machine that no job had."""
    FAILED_LAUNCH = "failed launch"
    """A machine that ended without having run a job."""
    MINIMUM = "minimum charge"
    """The rest of the first minute of a machine that lived for less."""
    HEAD = "head node"
    """The head node."""
    OTHER = "other machines"
    """Machines with the cluster's tag that are nodes of no pool, such as image builders."""
    REFUND = "spot refund"
    """Negative: spot machines that EC2 took back within their first hour cost nothing."""


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
