"""Divides an instance's cost over the jobs and idle times that used it.

An instance's life is cut wherever anything changes: a price, a job's start or end, the
moment from which work is lost. Within such a piece everything is constant, so its price
is exact. The pieces add up to the instance's cost, which is rounded once and then
apportioned. The charges of an instance therefore sum to its cost to the micro-dollar,
whatever sacct and the ledger say.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Charge, Component, InstanceCost
from toolkit.accounting.money import apportion, exact_amount, round_to_micro
from toolkit.prices import PriceSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.accounting.attempt_instances import Usage
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook

HOUR = 3600
WHOLE = Fraction(1)

ChargeKey = tuple[Component, int | None]
"""A component and the attempt (DBIndex) that caused it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Billing rules of EC2 that differ from the clock."""

    minimum_seconds: int = 60
    """EC2 bills at least this much of a Linux instance."""
    refund_within: int = HOUR
    """EC2 charges nothing for a spot instance that it interrupts before this age; 0: no refund."""


@dataclass(frozen=True, slots=True)
class Window:
    """The report's time: since ≤ t < until. A running instance is counted up to `until`."""

    since: int
    until: int


def allocate(
    instance: Instance, usages: Sequence[Usage], book: PriceBook, window: Window, policy: Policy
) -> InstanceCost | None:
    """Return an instance's charges within the window; None if it cost nothing."""
    end = window.until if instance.ended is None else instance.ended
    billed_end = end
    if instance.ended is not None:
        billed_end = max(end, instance.launched + policy.minimum_seconds)
    start, billed_until = max(instance.launched, window.since), min(billed_end, window.until)
    if start >= billed_until:
        return None
    spans = book.spans(instance.price_query(), start, billed_until)
    weights: dict[ChargeKey, Fraction] = defaultdict(Fraction)
    seconds: dict[ChargeKey, Fraction] = defaultdict(Fraction)
    timeline = _Timeline(instance, sorted(usages, key=lambda usage: (usage.start, usage.attempt)))
    for piece in _price_pieces(spans, timeline.cuts(end)):
        price = exact_amount(piece.price.usd_per_hour, piece.end - piece.start)
        for key, share in timeline.shares(piece.start, end):
            # Most parts are the whole instance; a product of fractions costs more than the test.
            weights[key] += price if share is WHOLE else price * share
            seconds[key] += (piece.end - piece.start) * share
    gross = round_to_micro(sum(weights.values(), Fraction(0)))
    charges = [
        Charge(component, instance.instance_id, attempt, micro, seconds[component, attempt])
        for (component, attempt), micro in zip(
            weights, apportion(gross, list(weights.values())), strict=True
        )
    ]
    refunds = _refunds(instance, charges, policy)
    return InstanceCost(
        instance_id=instance.instance_id,
        seconds=billed_until - start,
        gross=gross,
        refund=sum(refund.micro for refund in refunds),
        prices=tuple(dict.fromkeys(span.price for span in spans)),
        charges=(*charges, *refunds),
    )


def _refunds(instance: Instance, charges: Sequence[Charge], policy: Policy) -> list[Charge]:
    """Return each charge negated if EC2 interrupted the spot instance early.

    Early is within `refund_within` seconds of its launch. The refund goes to the
    attempt that was charged. It is a line of its own, and every account's total is
    still its real cost.
    """
    if not instance.interrupted or instance.ended is None or not instance.end_seen:
        return []
    if instance.ended - instance.launched >= policy.refund_within:
        return []
    by_attempt: dict[int | None, int] = defaultdict(int)
    for charge in charges:
        by_attempt[charge.attempt] += charge.micro
    return [
        Charge(Component.REFUND, instance.instance_id, attempt, -micro, Fraction(0))
        for attempt, micro in by_attempt.items()
        if micro
    ]


class _Timeline:
    """The use of an instance at any second. Seconds must be asked in rising order."""

    def __init__(self, instance: Instance, usages: Sequence[Usage]) -> None:
        self._instance = instance
        self._usages = usages
        self._next = 0
        self._active: list[Usage] = []
        self._latest: Usage | None = None

    def cuts(self, end: int) -> set[int]:
        """Return the seconds at which the use changes."""
        marks = {end}
        for usage in self._usages:
            marks |= {usage.start, usage.end}
            if usage.lost_from is not None:
                marks.add(usage.lost_from)
        return marks

    def shares(self, at: int, end: int) -> list[tuple[ChargeKey, Fraction]]:
        """Return the lines charged from `at` on; their parts sum to 1."""
        self._advance(at)
        if at >= end:
            cause = self._latest.attempt if self._latest else None
            return [((Component.MINIMUM, cause), WHOLE)]
        if not self._active:
            return [(self._unused_key(), WHOLE)]
        if len(self._active) == 1 and self._active[0].share == WHOLE:
            return [((_component(self._active[0], at), self._active[0].attempt), WHOLE)]
        total = sum((usage.share for usage in self._active), Fraction(0))
        scale = max(total, WHOLE)
        shares: list[tuple[ChargeKey, Fraction]] = [
            ((_component(usage, at), usage.attempt), usage.share / scale) for usage in self._active
        ]
        if total < 1:
            shares.append(((Component.UNALLOCATED, None), 1 - total))
        return shares

    def _advance(self, at: int) -> None:
        while self._next < len(self._usages) and self._usages[self._next].start <= at:
            usage = self._usages[self._next]
            self._active.append(usage)
            if self._latest is None or usage.end >= self._latest.end:
                self._latest = usage
            self._next += 1
        self._active = [usage for usage in self._active if usage.end > at]

    def _unused_key(self) -> ChargeKey:
        instance = self._instance
        if instance.is_head:
            return Component.HEAD, None
        if not instance.node:
            return Component.OTHER, None
        if not self._usages:
            has_ended = instance.ended is not None
            return (Component.FAILED_LAUNCH if has_ended else Component.BOOT), None
        if self._latest is None:
            return Component.BOOT, self._usages[0].attempt
        has_later_use = self._next < len(self._usages)
        return (Component.IDLE_GAP if has_later_use else Component.IDLE_TAIL), self._latest.attempt


def _component(usage: Usage, at: int) -> Component:
    is_lost = usage.lost_from is not None and at >= usage.lost_from
    return Component.LOST if is_lost else Component.WORK


def _price_pieces(spans: Sequence[PriceSpan], cuts: set[int]) -> Iterator[PriceSpan]:
    """Yield the price spans, cut further at the given seconds."""
    seconds = sorted(cuts)
    position = 0
    for span in spans:
        while position < len(seconds) and seconds[position] <= span.start:
            position += 1
        inner_cuts = []
        while position < len(seconds) and seconds[position] < span.end:
            inner_cuts.append(seconds[position])
            position += 1
        for low, high in pairwise((span.start, *inner_cuts, span.end)):
            yield PriceSpan(low, high, span.price)
