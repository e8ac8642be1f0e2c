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

from toolkit.accounting.charges import Charge, ChargePrices, Component, InstanceCost
from toolkit.accounting.cost_policy import CostPolicy, hidden_components, not_paid_by_jobs
from toolkit.accounting.days import day_costs
from toolkit.accounting.instance_hours import charged_prices
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import apportion, exact_amount, round_to_micro
from toolkit.accounting.timeline import WHOLE, Timeline
from toolkit.prices import PriceSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolkit.accounting.attempt_instances import Usage, Wait
    from toolkit.accounting.instances import Instance
    from toolkit.prices import Price, PriceBook

HOUR = 3600
DEFAULT_COST_POLICY = CostPolicy()

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
    cost_policy: CostPolicy = DEFAULT_COST_POLICY,
) -> InstanceCost | None:
    """Return an instance's charges within the window; None if it cost nothing."""
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
    charges = _charges(instance, billed, timeline, cost_policy)
    if not charges:
        return None  # a rack's node that no job held
    refunds = _refunds(instance, charges, policy)
    price_spans = [span for spans, _ in billed for span in spans]
    seconds = sum(span.end - span.start for span in price_spans)
    if instance.kind is Kind.RACK:
        seconds = int(sum(charge.seconds for charge in charges))
    gross = sum(charge.micro for charge in charges)
    refund = sum(refund.micro for refund in refunds)
    return InstanceCost(
        instance_id=instance.instance_id,
        seconds=seconds,
        gross=gross,
        refund=refund,
        prices=tuple(dict.fromkeys(span.price for span in price_spans)),
        charges=(*charges, *refunds),
        # AWS bills no rack.
        days=day_costs(price_spans, gross, refund) if instance.kind is Kind.INSTANCE else (),
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


def _charges(
    instance: Instance,
    billed: Sequence[tuple[Sequence[PriceSpan], int]],
    timeline: Timeline,
    cost_policy: CostPolicy,
) -> list[Charge]:
    """Return the charges of the spans, which sum to the rounded cost.

    Each element of `billed` has the prices of one running span, and the span's end.
    """
    weights: dict[_ChargeKey, Fraction] = defaultdict(Fraction)
    seconds: dict[_ChargeKey, Fraction] = defaultdict(Fraction)
    prices: dict[_ChargeKey, list[Price]] = defaultdict(list)
    not_of_jobs, hidden = not_paid_by_jobs(cost_policy), hidden_components(cost_policy)
    for spans, end in billed:
        for piece in _price_pieces(spans, timeline.cuts(end)):
            price = exact_amount(piece.price.usd_per_hour, piece.end - piece.start)
            for (component, attempt), share in timeline.shares(piece.start, end):
                if component in hidden:
                    continue
                payer = None if component in not_of_jobs else attempt
                key = component, payer, piece.price.is_known
                key_prices = prices[key]
                if not key_prices or key_prices[-1] is not piece.price:
                    key_prices.append(piece.price)
                # Most parts are the whole instance; a product of fractions costs more than a test.
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
            ChargePrices.of(prices[component, attempt, price_known]),
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
    prices: dict[int | None, ChargePrices | None] = {}
    for charge in charges:
        by_attempt[charge.attempt] += charge.micro
        if charge.prices is not None:
            prices[charge.attempt] = charge.prices.joined(prices.get(charge.attempt))
    name = instance.instance_id
    return [
        Charge(Component.REFUND, name, attempt, -micro, Fraction(0), prices=prices.get(attempt))
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
