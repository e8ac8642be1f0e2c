"""From a pool's offerings and a partition's policy to the ladder of calls to try. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slurmplugins.wanted import Lifecycle, Offering

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from slurmplugins.wanted import Pool

Rung = tuple[Offering, ...]
"""Offerings of one lifecycle in one zone, any of which will do: one call is made for them."""


class Preference(StrEnum):
    """In which order offerings are tried; AS_LISTED is the order of cluster.yaml."""

    AS_LISTED = "as-listed"
    SPOT_ONLY = "spot-only"
    SPOT_FIRST = "spot-first"
    ON_DEMAND_AFTER = "on-demand-after"
    ON_DEMAND_ONLY = "on-demand-only"
    CHEAPEST_FIRST = "cheapest-first"


@dataclass(frozen=True, slots=True)
class Policy:
    """A partition's. `after`: seconds a job waits for spot before it may go on demand."""

    preference: Preference = Preference.AS_LISTED
    after: float = 0.0


def ladder(pool: Pool, policy: Policy, waited: float) -> tuple[Rung, ...]:
    """What to try, rung by rung, for a job that has waited that many seconds.

    Neighbours of one lifecycle are one rung a zone, so that EC2 may choose among their instance
    types; a reservation is always a rung of its own. Except as listed and for spot alone,
    reservations come first: they are paid for anyway.
    """
    chosen = _once(_chosen(pool.offerings, policy, waited))
    alone = pool.one_by_one or policy.preference is Preference.CHEAPEST_FIRST
    return tuple((item,) for item in chosen) if alone else _grouped(chosen)


def without_spot(rungs: Iterable[Rung]) -> tuple[Rung, ...]:
    return tuple(rung for rung in rungs if rung[0].lifecycle is not Lifecycle.SPOT)


def spot_price(rungs: Iterable[Rung]) -> Decimal | None:
    """USD an hour of the first spot offering; None when there is no spot among them."""
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
    """Keep the first of each: EC2 refuses a fleet that lists one twice.

    A type that is listed for a zone and, in another line, for all zones is there twice.
    """
    first: dict[str, Offering] = {}
    for item in offerings:
        first.setdefault(item.key, item)
    return tuple(first.values())


def _cost(offering: Offering) -> tuple[bool, Decimal]:
    """An unknown price goes last: it is not to win because nobody knows it."""
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
        # What follows a reservation never joins it.
        run = [] if item.reservation else [*run, rungs[-1]]
    return tuple(tuple(rung) for rung in rungs)
