"""Turn a pool's offerings and a partition's policy into the order of calls to try. Pure.

The bound on spot's share of a pool's hourly cost is applied here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from slurmplugins.model.offering import Lifecycle, Offering, Policy, Preference, Rung

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.model.instance import Instance
    from slurmplugins.model.offering import Pool


HIGHEST: Final = 1_000_000
"""USD an hour that no instance costs. Sums of higher prices may not fit a Decimal."""


def ladder(pool: Pool, policy: Policy, waited: float) -> tuple[Rung, ...]:
    """Return the fallback order: groups of offerings to try in turn.

    `waited` is the job's time in the queue, in seconds. Neighbours of one lifecycle and zone form
    one group, so that EC2 may choose among their instance types. A reservation is always a group of
    its own. Reservations come first, because they are paid for anyway, with two exceptions.
    AS_LISTED keeps the order of the list, and SPOT_ONLY has spot offerings alone.
    """
    chosen = _once(_chosen(pool.offerings, policy, waited))
    alone = pool.one_by_one or policy.preference is Preference.CHEAPEST_FIRST
    return tuple((item,) for item in chosen) if alone else _grouped(chosen)


def without_spot(rungs: Iterable[Rung]) -> tuple[Rung, ...]:
    """Drop the spot groups."""
    return tuple(rung for rung in rungs if rung[0].lifecycle is not Lifecycle.SPOT)


def spot_price(rungs: Iterable[Rung]) -> Decimal | None:
    """Return the first spot offering's price in USD an hour.

    None means that there is no spot offering.
    """
    from decimal import Decimal

    found = (rung[0].price for rung in rungs if rung[0].lifecycle is Lifecycle.SPOT)
    price = next(found, None)
    return None if price is None else Decimal(price)


def _chosen(offerings: Sequence[Offering], policy: Policy, waited: float) -> Sequence[Offering]:
    reserved = [item for item in offerings if item.reservation]
    bought = [item for item in offerings if not item.reservation]
    spot = [item for item in bought if item.lifecycle is Lifecycle.SPOT]
    demand = [item for item in bought if item.lifecycle is not Lifecycle.SPOT]
    match policy.preference:
        case Preference.AS_LISTED:
            return offerings
        case Preference.SPOT_ONLY:
            return spot
        case Preference.SPOT_FIRST:
            return [*reserved, *spot, *demand]
        case Preference.ON_DEMAND_AFTER:
            return [*reserved, *spot, *(demand if waited >= policy.after else [])]
        case Preference.ON_DEMAND_ONLY:
            return [*reserved, *demand]
        case Preference.CHEAPEST_FIRST:
            return [*reserved, *sorted(bought, key=_cost)]


def _once(offerings: Iterable[Offering]) -> tuple[Offering, ...]:
    """Keep the first of each offering.

    EC2 refuses a fleet that lists one twice. A type may be listed for a zone and, in another line,
    for all zones. It is then there twice.
    """
    first: dict[str, Offering] = {}
    for item in offerings:
        first.setdefault(item.key, item)
    return tuple(first.values())


def _cost(offering: Offering) -> tuple[bool, Decimal]:
    """Return a sort key; an unknown price goes last.

    An offering must not win because its price is unknown.
    """
    from decimal import Decimal

    price = Decimal(offering.price)
    return not price, price


def _grouped(offerings: Sequence[Offering]) -> tuple[Rung, ...]:
    rungs: list[list[Offering]] = []
    run: list[list[Offering]] = []
    for item in offerings:
        if run and (run[0][0].lifecycle is not item.lifecycle or item.reservation):
            run = []
        same = next((rung for rung in run if rung[0].zone == item.zone), None)
        if same is not None:
            same.append(item)
            continue
        rungs.append([item])
        # A later offering never joins a reservation.
        run = [] if item.reservation else [*run, rungs[-1]]
    return tuple(tuple(rung) for rung in rungs)


@dataclass(frozen=True, slots=True)
class Spend:
    """The cost of a pool's instances in USD an hour, at the prices of their launch."""

    spot: Decimal = Decimal(0)
    total: Decimal = Decimal(0)

    def plus(self, price: Decimal, *, spot: bool) -> Spend:
        return Spend(self.spot + price if spot else self.spot, self.total + price)


def by_pool(machines: Iterable[Instance]) -> dict[str, Spend]:
    """Sum the cost of the live instances, by pool."""
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
    """Return the spend after a job's launch, and its fallback order.

    `count` is the job's number of instances. Spot offerings are dropped when spot would exceed its
    share with them.
    """
    price = spot_price(ladder)
    if price is not None:
        after = known.plus(price * count, spot=True)
        if max_spot_share >= 1 or after.spot <= after.total * Decimal(str(max_spot_share)):
            return after, ladder
    left = without_spot(ladder)
    return known.plus(_first(left) * count, spot=False), left


def _first(ladder: Sequence[Rung]) -> Decimal:
    return Decimal(ladder[0][0].price) if ladder else Decimal(0)


def _price(text: str) -> Decimal:
    """Read a price tag, which anybody may have written; 0 if odd."""
    try:
        price = Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)
    return price if price.is_finite() and 0 < price < HIGHEST else Decimal(0)
