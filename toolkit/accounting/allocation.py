"""Divides an instance's cost over the jobs and idle times that used it.

An instance's life is cut wherever anything changes: a price, a job's start or end, a
wait, the moment from which work is lost. Within such a piece everything is constant, so its price
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
from toolkit.accounting.instance_hours import charged_prices
from toolkit.accounting.money import apportion, exact_amount, round_to_micro
from toolkit.accounting.timeline import WHOLE, Timeline
from toolkit.prices import PriceSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.accounting.attempt_instances import Usage, Wait
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook

HOUR = 3600

_ChargeKey = tuple[Component, int | None, bool]
"""A component, the attempt (DBIndex) that caused it, and whether its price is known."""


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
    instance: Instance,
    usages: Sequence[Usage],
    book: PriceBook,
    window: Window,
    policy: Policy,
    *,
    waits: Sequence[Wait] = (),
) -> InstanceCost | None:
    """Return an instance's charges within the window; None if it cost nothing."""
    end = window.until if instance.ended is None else instance.ended
    billed_end = end
    if instance.ended is not None:
        billed_end = max(end, instance.billed_from + policy.minimum_seconds)
    start, billed_until = max(instance.billed_from, window.since), min(billed_end, window.until)
    if start >= billed_until or instance.never_ran:
        return None
    spans = charged_prices(instance, book, start, billed_until)
    charges = _charges(instance, spans, Timeline(instance, usages, waits), end)
    refunds = _refunds(instance, charges, policy)
    return InstanceCost(
        instance_id=instance.instance_id,
        seconds=billed_until - start,
        gross=sum(charge.micro for charge in charges),
        refund=sum(refund.micro for refund in refunds),
        prices=tuple(dict.fromkeys(span.price for span in spans)),
        charges=(*charges, *refunds),
    )


def _charges(
    instance: Instance, spans: Sequence[PriceSpan], timeline: Timeline, end: int
) -> list[Charge]:
    """Return the charges of the spans, which sum to the rounded cost."""
    weights: dict[_ChargeKey, Fraction] = defaultdict(Fraction)
    seconds: dict[_ChargeKey, Fraction] = defaultdict(Fraction)
    for piece in _price_pieces(spans, timeline.cuts(end)):
        price = exact_amount(piece.price.usd_per_hour, piece.end - piece.start)
        for (component, attempt), share in timeline.shares(piece.start, end):
            key = component, attempt, piece.price.is_known
            # Most parts are the whole instance; a product of fractions costs more than the test.
            weights[key] += price if share is WHOLE else price * share
            seconds[key] += (piece.end - piece.start) * share
    gross = round_to_micro(sum(weights.values(), Fraction(0)))
    return [
        Charge(
            component,
            instance.instance_id,
            attempt,
            micro,
            seconds[component, attempt, price_known],
            price_known,
        )
        for (component, attempt, price_known), micro in zip(
            weights, apportion(gross, list(weights.values())), strict=True
        )
    ]


def _refunds(instance: Instance, charges: Sequence[Charge], policy: Policy) -> list[Charge]:
    """Return each charge negated if EC2 interrupted the spot instance early.

    Early is within `refund_within` seconds of its launch. The refund goes to the
    attempt that was charged. It is a line of its own, and every account's total is
    still its real cost.
    """
    if not instance.interrupted or instance.ended is None or not instance.end_seen:
        return []
    if instance.ended - instance.billed_from >= policy.refund_within:
        return []
    by_attempt: dict[int | None, int] = defaultdict(int)
    for charge in charges:
        by_attempt[charge.attempt] += charge.micro
    return [
        Charge(Component.REFUND, instance.instance_id, attempt, -micro, Fraction(0))
        for attempt, micro in by_attempt.items()
        if micro
    ]


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
