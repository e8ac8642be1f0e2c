"""The exact parts of an instance's cost, before anything is rounded.

Parts of windows that follow each other add up without loss. So a report of several windows has the
sums of one window: what is rounded is the whole.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Charge, ChargePrices, Component, InstanceCost
from toolkit.accounting.cost_policy import hidden_components, not_paid_by_jobs
from toolkit.accounting.days import day_costs_of
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import apportion, exact_sum, round_to_micro

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    from toolkit.accounting.cost_policy import CostPolicy
    from toolkit.accounting.days import DayPart
    from toolkit.prices import Price, PriceSource

_DIVIDED = frozenset({Kind.INSTANCE, Kind.RACK})
"""The kinds whose components have payers; a resource is one line."""


@dataclass(frozen=True, slots=True)
class Part:
    """The exact cost of one component of one attempt."""

    component: Component
    attempt: int | None  # DBIndex of the attempt that caused it, whoever pays
    price_known: bool
    micro: Fraction  # micro-dollars
    seconds: Fraction
    prices: ChargePrices | None


@dataclass(frozen=True, slots=True)
class InstanceParts:
    """The parts of one instance, rack's node or resource within a window."""

    instance_id: str
    kind: Kind
    seconds: int  # billed, within the window
    parts: tuple[Part, ...]  # in the order of their first second
    prices: tuple[Price, ...]
    days: tuple[DayPart, ...] = ()
    is_refunded: bool = False
    next_use: int | None = None
    """The second behind the window at which its next use begins, if one is known."""

    @property
    def sources(self) -> frozenset[PriceSource]:
        """Return the sources of its prices."""
        return frozenset(price.source for price in self.prices)

    def is_visible(self, policy: CostPolicy) -> bool:
        """Return whether the policy shows any of its parts."""
        hidden = hidden_components(policy) if self.kind in _DIVIDED else frozenset()
        return any(part.component not in hidden for part in self.parts)


def rounded(item: InstanceParts, policy: CostPolicy) -> InstanceCost | None:
    """Return the charges in whole micro-dollars; None if all are hidden.

    The sum is rounded once, and the charges add up to it.
    """
    paid = _paid(item, policy)
    if not paid:
        return None
    gross = round_to_micro(exact_sum([part.micro for part in paid]))
    charges = [
        Charge(
            part.component,
            item.instance_id,
            part.attempt,
            micro,
            part.seconds,
            part.price_known,
            part.prices,
        )
        for part, micro in zip(paid, apportion(gross, [part.micro for part in paid]), strict=True)
    ]
    refunds = _refunds(item.instance_id, charges) if item.is_refunded else []
    refund = sum(charge.micro for charge in refunds)
    seconds = item.seconds
    if item.kind is Kind.RACK:
        seconds = int(sum(charge.seconds for charge in charges))
    return InstanceCost(
        instance_id=item.instance_id,
        seconds=seconds,
        gross=gross,
        refund=refund,
        prices=item.prices,
        charges=(*charges, *refunds),
        days=day_costs_of(item.days, gross, refund),
    )


def added(items: Sequence[InstanceParts], until: int) -> InstanceParts:
    """Return the parts of windows that follow each other.

    The last one ends at `until`. What was an idle tail at the end of its window is a gap, if the
    next use begins before that.
    """
    items = [_with_gap(item, until) for item in items]
    if len(items) == 1:
        return items[0]
    last = items[-1]
    return InstanceParts(
        last.instance_id,
        last.kind,
        sum(item.seconds for item in items),
        _sums(part for item in items for part in item.parts),
        tuple(dict.fromkeys(price for item in items for price in item.prices)),
        _days(day for item in items for day in item.days),
        is_refunded=any(item.is_refunded for item in items),
        next_use=last.next_use,
    )


def _with_gap(item: InstanceParts, until: int) -> InstanceParts:
    if item.next_use is None or item.next_use >= until:
        return item
    parts = [
        replace(part, component=Component.IDLE_GAP)
        if part.component is Component.IDLE_TAIL
        else part
        for part in item.parts
    ]
    return replace(item, parts=_sums(parts), next_use=None)


def _paid(item: InstanceParts, policy: CostPolicy) -> tuple[Part, ...]:
    """Return the visible parts, each with the attempt that pays."""
    if item.kind not in _DIVIDED:
        return item.parts
    hidden, not_of_jobs = hidden_components(policy), not_paid_by_jobs(policy)
    if not hidden and not any(part.component in not_of_jobs for part in item.parts):
        return item.parts
    return _sums(
        replace(part, attempt=None) if part.component in not_of_jobs else part
        for part in item.parts
        if part.component not in hidden
    )


def _sums(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts, each key once, at its first place."""
    sums: dict[tuple[Component, int | None, bool], Part] = {}
    for part in parts:
        key = part.component, part.attempt, part.price_known
        known = sums.get(key)
        if known is None:
            sums[key] = part
            continue
        prices = known.prices if part.prices is None else part.prices.joined(known.prices)
        sums[key] = replace(
            known,
            micro=known.micro + part.micro,
            seconds=known.seconds + part.seconds,
            prices=prices,
        )
    return tuple(sums.values())


def _days(parts: Iterable[DayPart]) -> tuple[DayPart, ...]:
    """Return the parts, each day once."""
    sums: dict[date, DayPart] = {}
    for part in parts:
        known = sums.get(part.day)
        sums[part.day] = part if known is None else known.joined(part)
    return tuple(sums.values())


def _refunds(name: str, charges: Iterable[Charge]) -> list[Charge]:
    """Return what EC2 takes back: each attempt's charges, negated.

    A refund is a line of its own, and goes to the attempt that was charged.
    """
    by_attempt: dict[int | None, int] = defaultdict(int)
    prices: dict[int | None, ChargePrices | None] = {}
    for charge in charges:
        by_attempt[charge.attempt] += charge.micro
        if charge.prices is not None:
            prices[charge.attempt] = charge.prices.joined(prices.get(charge.attempt))
    return [
        Charge(Component.REFUND, name, attempt, -micro, Fraction(0), prices=prices.get(attempt))
        for attempt, micro in by_attempt.items()
        if micro
    ]
