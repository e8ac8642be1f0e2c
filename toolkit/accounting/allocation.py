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
from typing import TYPE_CHECKING, NamedTuple

from toolkit.accounting.charges import ChargePrices, Component
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.days import day_parts
from toolkit.accounting.instance_hours import charged_prices
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import exact_amount, exact_sum
from toolkit.accounting.parts import InstanceParts, Part, rounded
from toolkit.accounting.timeline import WHOLE, Timeline
from toolkit.prices import PriceSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.accounting.attempt_instances import Usage, Wait
    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.prices import Price, PriceBook

HOUR = 3600
DEFAULT_COST_POLICY = CostPolicy()

_PartKey = tuple[Component, int | None, bool]
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
    cost_policy: CostPolicy = DEFAULT_COST_POLICY,
) -> InstanceCost | None:
    """Return an instance's charges within the window; None if it cost nothing."""
    item = weigh(instance, usages, book, window, policy, waits=waits)
    return None if item is None else rounded(item, cost_policy)


def weigh(
    instance: Instance,
    usages: Sequence[Usage],
    book: PriceBook,
    window: Window,
    policy: Policy,
    *,
    waits: Sequence[Wait] = (),
) -> InstanceParts | None:
    """Return an instance's exact parts; None if it cost nothing."""
    if instance.never_ran:
        return None
    billed = [
        (charged_prices(instance, book, span.start, low, high), span.end)
        for span in billed_spans(instance, window.until, policy)
        if (low := max(span.start, window.since)) < (high := min(span.until, window.until))
    ]
    if not billed:
        return None
    timeline = Timeline(instance, usages, waits, window.until)
    price_spans = [span for spans, _ in billed for span in spans]
    items: list[Usage | Wait] = [*usages, *waits]
    return InstanceParts(
        instance_id=instance.instance_id,
        kind=instance.kind,
        seconds=sum(span.end - span.start for span in price_spans),
        parts=_parts(billed, timeline),
        prices=tuple(dict.fromkeys(span.price for span in price_spans)),
        # AWS bills no rack.
        days=day_parts(price_spans) if instance.kind is Kind.INSTANCE else (),
        is_refunded=_is_refunded(instance, policy),
        next_use=min((item.start for item in items if item.start >= window.until), default=None),
    )


class BilledSpan(NamedTuple):
    """A time in which an instance ran, and the second until which EC2 bills it."""

    start: int
    end: int
    until: int


def billed_spans(instance: Instance, until: int, policy: Policy) -> Iterator[BilledSpan]:
    """Yield the spans of a life, each with its own minimum."""
    spans = instance.running_spans(until if instance.ended is None else instance.ended)
    is_running = instance.ended is None and spans[-1][1] == until
    for number, (start, end) in enumerate(spans, start=1):
        has_ended = number < len(spans) or not is_running
        yield BilledSpan(start, end, max(end, start + policy.minimum_seconds * has_ended))


def _parts(
    billed: Sequence[tuple[Sequence[PriceSpan], int]], timeline: Timeline
) -> tuple[Part, ...]:
    """Return the parts of the spans.

    Each element of `billed` has the prices of one running span, and the span's end.
    """
    uses: dict[_PartKey, list[_Use]] = defaultdict(list)
    for spans, end in billed:
        for piece in _price_pieces(spans, timeline.cuts(end)):
            price, length = piece.price, piece.end - piece.start
            for (component, attempt), share in timeline.shares(piece.start, end):
                # Most parts are the whole instance, at one price: whole seconds add up soonest.
                seconds = length if share is WHOLE else length * share
                found = uses[component, attempt, price.is_known]
                if found and found[-1].price is price:
                    found[-1].seconds += seconds
                else:
                    found.append(_Use(price, seconds))
    return tuple(_part(key, found) for key, found in uses.items())


@dataclass(slots=True)
class _Use:
    """Seconds of an instance at one price."""

    price: Price
    seconds: Fraction | int


def _part(key: _PartKey, uses: Sequence[_Use]) -> Part:
    """Return the part of some uses."""
    if len(uses) == 1:  # as most have
        price, seconds = uses[0].price, uses[0].seconds
        micro = exact_amount(price.usd_per_hour, seconds)
        return Part(*key, micro, Fraction(seconds), ChargePrices.of((price,)))
    weights = [exact_amount(use.price.usd_per_hour, use.seconds) for use in uses]
    return Part(
        *key,
        exact_sum(weights),
        Fraction(sum(use.seconds for use in uses)),
        ChargePrices.of([use.price for use in uses]),
    )


def _is_refunded(instance: Instance, policy: Policy) -> bool:
    """Return whether EC2 interrupted the spot instance early, and so charges nothing.

    Early is within `refund_within` seconds of its launch.
    """
    if not instance.interrupted or instance.ended is None or not instance.end_seen:
        return False
    return instance.ended - instance.billed_from < policy.refund_within


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
