"""Turn a pool's offerings and a partition's policy into the order of calls to try. Pure.

The bound on spot's share of a pool's hourly cost is applied here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import Lifecycle, Offering, OfferingGroup, Policy, PolicyName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.model.instance import Instance, Pool


PRICE_LIMIT: Final = 1_000_000
"""USD an hour that no instance costs. Sums of higher prices may not fit a Decimal."""


def fallback_order(pool: Pool, policy: Policy, queue_seconds: float) -> tuple[OfferingGroup, ...]:
    """Return the fallback order: groups of offerings to try in turn.

    `queue_seconds` is the job's time in the queue. Neighbours of one lifecycle and zone form
    one group, so that EC2 may choose among their instance types. A reservation is always a group of
    its own. Reservations come first, because they are paid for anyway, with two exceptions.
    AS_LISTED keeps the order of the list, and SPOT_ONLY has spot offerings alone.
    """
    offerings = _unique(_policy_offerings(pool.offerings, policy, queue_seconds))
    is_ungrouped = pool.one_by_one or policy.name is PolicyName.CHEAPEST_FIRST
    return tuple((item,) for item in offerings) if is_ungrouped else _group_offerings(offerings)


def without_spot(groups: Iterable[OfferingGroup]) -> tuple[OfferingGroup, ...]:
    """Drop the spot groups."""
    return tuple(group for group in groups if group[0].lifecycle is not Lifecycle.SPOT)


def spot_price(groups: Iterable[OfferingGroup]) -> Decimal | None:
    """Return the first spot offering's price in USD an hour.

    None means that there is no spot offering.
    """
    prices = (group[0].price for group in groups if group[0].lifecycle is Lifecycle.SPOT)
    price = next(prices, None)
    return None if price is None else Decimal(price)


def _policy_offerings(
    offerings: Sequence[Offering], policy: Policy, queue_seconds: float
) -> Sequence[Offering]:
    reservations = [item for item in offerings if item.reservation]
    unreserved = [item for item in offerings if not item.reservation]
    spot = [item for item in unreserved if item.lifecycle is Lifecycle.SPOT]
    on_demand = [item for item in unreserved if item.lifecycle is not Lifecycle.SPOT]
    match policy.name:
        case PolicyName.AS_LISTED:
            return offerings
        case PolicyName.SPOT_ONLY:
            return spot
        case PolicyName.SPOT_FIRST:
            return [*reservations, *spot, *on_demand]
        case PolicyName.ON_DEMAND_AFTER:
            return [
                *reservations,
                *spot,
                *(on_demand if queue_seconds >= policy.on_demand_after else []),
            ]
        case PolicyName.ON_DEMAND_ONLY:
            return [*reservations, *on_demand]
        case PolicyName.CHEAPEST_FIRST:
            return [*reservations, *sorted(unreserved, key=_cost_sort_key)]


def _unique(offerings: Iterable[Offering]) -> tuple[Offering, ...]:
    """Keep the first of each offering.

    EC2 refuses a fleet that lists one twice. A type may be listed for a zone and, in another line,
    for all zones. It is then there twice.
    """
    by_key: dict[str, Offering] = {}
    for item in offerings:
        by_key.setdefault(item.key, item)
    return tuple(by_key.values())


def _cost_sort_key(offering: Offering) -> tuple[bool, Decimal]:
    """Return a sort key; an unknown price goes last.

    An offering must not win because its price is unknown.
    """
    price = Decimal(offering.price)
    return not price, price


def _group_offerings(offerings: Sequence[Offering]) -> tuple[OfferingGroup, ...]:
    groups: list[list[Offering]] = []
    open_groups: list[list[Offering]] = []
    for item in offerings:
        if open_groups and (open_groups[0][0].lifecycle is not item.lifecycle or item.reservation):
            open_groups = []
        group = next(
            (candidate for candidate in open_groups if candidate[0].zone == item.zone), None
        )
        if group is not None:
            group.append(item)
            continue
        groups.append([item])
        # A later offering never joins a reservation.
        open_groups = [] if item.reservation else [*open_groups, groups[-1]]
    return tuple(tuple(candidate) for candidate in groups)


@dataclass(frozen=True, slots=True)
class Spend:
    """The cost of a pool's instances in USD an hour, at the prices of their launch."""

    spot: Decimal = Decimal(0)
    total: Decimal = Decimal(0)

    def with_price(self, price: Decimal, *, spot: bool) -> Spend:
        return Spend(self.spot + price if spot else self.spot, self.total + price)


def spend_by_pool(instances: Iterable[Instance]) -> dict[str, Spend]:
    """Sum the cost of the live instances, by pool."""
    by_name: dict[str, Spend] = {}
    for instance in instances:
        if instance.state.live:
            previous = by_name.get(instance.pool, Spend())
            spot = instance.lifecycle is Lifecycle.SPOT
            by_name[instance.pool] = previous.with_price(_parse_price(instance.price), spot=spot)
    return by_name


def apply_spot_limit(
    spend: Spend, groups: tuple[OfferingGroup, ...], count: int, max_spot_share: float
) -> tuple[Spend, tuple[OfferingGroup, ...]]:
    """Return the spend after a job's launch, and its fallback order.

    `count` is the job's number of instances. Spot offerings are dropped when spot would exceed its
    share with them.
    """
    price = spot_price(groups)
    if price is not None:
        spend_with_spot = spend.with_price(price * count, spot=True)
        if max_spot_share >= 1 or spend_with_spot.spot <= spend_with_spot.total * Decimal(
            str(max_spot_share)
        ):
            return spend_with_spot, groups
    on_demand_groups = without_spot(groups)
    return spend.with_price(_first_price(on_demand_groups) * count, spot=False), on_demand_groups


def _first_price(groups: Sequence[OfferingGroup]) -> Decimal:
    return Decimal(groups[0][0].price) if groups else Decimal(0)


def _parse_price(text: str) -> Decimal:
    """Read a price tag, which anybody may have written; 0 if odd."""
    try:
        price = Decimal(text or 0)
    except InvalidOperation:
        return Decimal(0)
    return price if price.is_finite() and 0 < price < PRICE_LIMIT else Decimal(0)
