"""What a pool costs an hour, and how much of that is spot. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from slurmplugins import policy
from slurmplugins.model import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.model import Instance
    from slurmplugins.policy import Rung


HIGHEST: Final = 1_000_000
"""USD an hour that no instance costs: sums of what is higher may not fit a Decimal."""


@dataclass(frozen=True, slots=True)
class Spend:
    """USD an hour, at the prices of launch."""

    spot: Decimal = Decimal(0)
    total: Decimal = Decimal(0)

    def plus(self, price: Decimal, *, spot: bool) -> Spend:
        return Spend(self.spot + price if spot else self.spot, self.total + price)


def by_pool(machines: Iterable[Instance]) -> dict[str, Spend]:
    """Of the machines that live now."""
    found: dict[str, Spend] = {}
    for machine in machines:
        if machine.state.live:
            before = found.get(machine.pool, Spend())
            spot = machine.lifecycle is Lifecycle.SPOT
            found[machine.pool] = before.plus(_price(machine.price), spot=spot)
    return found


def plan(
    known: Spend, ladder: tuple[Rung, ...], count: int, max_spot_share: float
) -> tuple[Spend, tuple[Rung, ...]]:
    """The ladder for a job of so many machines, and the spend when it has them.

    Without the spot offerings, where with them spot would have more than its share.
    """
    price = policy.spot_price(ladder)
    if price is not None:
        after = known.plus(price * count, spot=True)
        if max_spot_share >= 1 or after.spot <= after.total * Decimal(str(max_spot_share)):
            return after, ladder
    left = policy.without_spot(ladder)
    return known.plus(_first(left) * count, spot=False), left


def _first(ladder: Sequence[Rung]) -> Decimal:
    return Decimal(ladder[0][0].price) if ladder else Decimal(0)


def _price(text: str) -> Decimal:
    """A tag anybody may have written."""
    try:
        price = Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)
    return price if price.is_finite() and 0 < price < HIGHEST else Decimal(0)
