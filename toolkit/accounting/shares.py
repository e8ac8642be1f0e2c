"""Divides the costs that all jobs share, by the cost of each job's work.

A share takes an amount from the cluster and gives it to jobs, in the same component. So the
charges of every instance stay as they are, and the sum of all shares is zero.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Charge, Component
from toolkit.accounting.cost_policy import Payer
from toolkit.accounting.money import apportion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.accounting.charges import ChargePrices, InstanceCost
    from toolkit.accounting.cost_policy import CostPolicy

SHARED = "shared"
"""The name of no instance: a share belongs to all of them."""


def shares(costs: Sequence[InstanceCost], policy: CostPolicy) -> tuple[Charge, ...]:
    """Return the shares of the report, none if no job worked.

    What EC2 refunded whole has no cost to share.
    """
    works: dict[int, int] = defaultdict(int)
    amounts: dict[Component, int] = defaultdict(int)
    prices: dict[Component, ChargePrices | None] = {}
    for cost in costs:
        for charge in cost.charges:
            if charge.component in {Component.WORK, Component.LOST} and charge.attempt is not None:
                works[charge.attempt] += charge.micro
            elif not cost.refund and policy.payer(charge.component) is Payer.SHARED:
                amounts[charge.component] += charge.micro
                if charge.prices is not None:
                    earlier = prices.get(charge.component)
                    prices[charge.component] = charge.prices.joined(earlier)
    if not any(works.values()):
        return ()
    weights = {attempt: Fraction(works[attempt]) for attempt in sorted(works)}
    return tuple(
        share
        for component in Component
        if amounts[component]
        for share in _shares(component, amounts[component], prices.get(component), weights)
    )


def _shares(
    component: Component,
    amount: int,
    prices: ChargePrices | None,
    weights: Mapping[int, Fraction],
) -> Iterator[Charge]:
    """Yield what leaves the cluster, then what reaches each attempt."""
    yield Charge(component, SHARED, None, -amount, Fraction(0), prices=prices)
    parts = apportion(amount, list(weights.values()))
    for attempt, micro in zip(weights, parts, strict=True):
        if micro:
            yield Charge(component, SHARED, attempt, micro, Fraction(0), prices=prices)
