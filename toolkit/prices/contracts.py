"""Prices that were agreed or paid in advance, as cluster.yaml states them."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal
from typing import TYPE_CHECKING, Final

from toolkit.prices.model import Price, PriceSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.prices.model import PriceQuery

_PLACES: Final = Decimal("0.000000000001")
_PERCENT: Final = 100
HOURS_OF_YEAR: Final = 8760
SECONDS_OF_HOUR: Final = 3600


def whole_places(usd: Decimal) -> Decimal:
    """Return a derived price with twelve places, rounded down."""
    return usd.quantize(_PLACES, ROUND_DOWN)


def discounted(usd: Decimal, percent: Decimal) -> Decimal:
    """Return a price less a percentage."""
    return whole_places(usd * (_PERCENT - percent) / _PERCENT)


@dataclass(frozen=True, slots=True)
class Term:
    """The time in which a price holds: since ≤ t < until."""

    since: int = 0
    until: int | None = None  # None: without an end

    def holds(self, second: int) -> bool:
        """Return whether the second is in it."""
        return self.since <= second and (self.until is None or second < self.until)


@dataclass(frozen=True, slots=True)
class NegotiatedPrice:
    """A price on demand, or a discount on the catalogue's. Empty names stand for all."""

    usd_per_hour: Decimal | None = None  # None: a discount
    discount_percent: Decimal = Decimal(0)
    instance_type: str = ""
    region: str = ""
    term: Term = Term()

    def holds(self, instance_type: str, region: str, second: int) -> bool:
        """Return whether it is the price of that type at that second."""
        return (
            self.instance_type in {"", instance_type}
            and self.region in {"", region}
            and self.term.holds(second)
        )

    @property
    def narrowness(self) -> tuple[bool, bool]:
        """Return its rank: the price of a type comes first."""
        return bool(self.instance_type), bool(self.region)


@dataclass(frozen=True, slots=True)
class Match:
    """The on-demand instances that a commitment is for. Empty values stand for all."""

    instance_type: str = ""
    family: str = ""
    pools: frozenset[tuple[str, str, str]] | None = None
    """Pool, type and zone of a capacity block's instances; an empty text stands for any."""

    def includes(self, query: PriceQuery) -> bool:
        """Return whether the commitment may pay for the instance."""
        if query.spot:
            return False
        if self.pools is not None:
            return any(
                pool == query.pool
                and kind in {"", query.instance_type}
                and zone in {"", query.zone}
                for pool, kind, zone in self.pools
            )
        family = query.instance_type.partition(".")[0]
        return self.instance_type in {"", query.instance_type} and self.family in {"", family}


@dataclass(frozen=True, slots=True)
class Reservation:
    """Instances that are paid for whether they run or not: reserved ones, a capacity block."""

    name: str  # as the report writes it
    source: PriceSource
    match: Match
    count: int
    usd_per_hour: Decimal  # of one instance
    term: Term


@dataclass(frozen=True, slots=True)
class SavingsPlan:
    """An amount that is paid each hour, and the prices at which instances use it up."""

    name: str
    match: Match
    usd_per_hour: Decimal  # the commitment
    term: Term
    discount_percent: Decimal | None = None
    rates: Mapping[str, Decimal] = field(default_factory=dict)  # by type

    @property
    def source(self) -> PriceSource:
        """Return the source of its prices."""
        return PriceSource.SAVINGS_PLAN

    def rate(self, query: PriceQuery, on_demand: Price) -> Decimal | None:
        """Return the plan's price of an hour; None without one."""
        rate = self.rates.get(query.instance_type)
        if rate is not None:
            return rate
        if self.discount_percent is None or not on_demand.is_known:
            return None
        return discounted(on_demand.usd_per_hour, self.discount_percent) or None


@dataclass(frozen=True, slots=True)
class Contracts:
    """All prices of cluster.yaml for instances."""

    as_of: int = 0  # epoch second
    on_demand: tuple[NegotiatedPrice, ...] = ()
    reservations: tuple[Reservation, ...] = ()  # capacity blocks first
    savings_plans: tuple[SavingsPlan, ...] = ()

    @property
    def has_commitments(self) -> bool:
        """Return whether something is paid also while no instance runs."""
        return bool(self.reservations or self.savings_plans)

    def negotiated(
        self, instance_type: str, region: str, second: int, listed: Price | None
    ) -> Price | None:
        """Return the price at a second; None without a contract for it.

        A price of the type comes before a discount on everything. A discount needs the
        catalogue's price.
        """
        holding = [item for item in self.on_demand if item.holds(instance_type, region, second)]
        for item in sorted(holding, key=lambda one: one.narrowness, reverse=True):
            if item.usd_per_hour is not None:
                return Price(item.usd_per_hour, PriceSource.CONTRACT, self.as_of)
            if listed is not None:
                usd = discounted(listed.usd_per_hour, item.discount_percent)
                return Price(usd, PriceSource.DISCOUNT, listed.as_of)
        return None

    def changes(self, instance_type: str, region: str) -> set[int]:
        """Return the seconds at which the type's price changes."""
        seconds: set[int] = set()
        for item in self.on_demand:
            if item.instance_type in {"", instance_type} and item.region in {"", region}:
                seconds |= {item.term.since}
                seconds |= {item.term.until} if item.term.until is not None else set()
        return seconds


@dataclass(frozen=True, slots=True)
class RackRate:
    """The parts of a rack node's rate, all of one node."""

    capex_usd: Decimal
    years: Decimal
    target_utilisation: Decimal
    watts: Decimal = Decimal(0)
    usd_per_kwh: Decimal = Decimal(0)
    staff_usd_per_year: Decimal = Decimal(0)

    @property
    def usd_per_hour(self) -> Decimal:
        """Return the rate of an hour in which jobs hold the node.

        (capex / years + watts / 1000 x 8760 x usd_per_kwh + staff) / (8760 x utilisation)
        """
        power = self.watts / 1000 * HOURS_OF_YEAR * self.usd_per_kwh
        year = self.capex_usd / self.years + power + self.staff_usd_per_year
        return whole_places(year / (HOURS_OF_YEAR * self.target_utilisation))


def block_rate(usd_total: Decimal, count: int, term: Term) -> Decimal:
    """Return a capacity block's price of one instance's hour."""
    seconds = (term.until or 0) - term.since
    return whole_places(usd_total * SECONDS_OF_HOUR / (count * seconds))
