"""A report as rows of FOCUS 1.2: one for each charge and UTC day.

The cluster is the issuer, and its accounts are the sub accounts. So a row's BilledCost is what the
report charges, and the rows sum to the report. ListCost is the price of AWS's list, and
ContractedCost the negotiated one, for the same hours.

A charge without a known price has no row, since FOCUS has no word for an unknown amount.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from toolkit.accounting.charges import Component
from toolkit.accounting.export import iso
from toolkit.accounting.money import SECONDS_PER_HOUR, usd
from toolkit.accounting.phrases import moment
from toolkit.finance import focus_services as services
from toolkit.finance.charges_by_day import charges_by_day
from toolkit.finance.errors import FocusPeriodInvalid
from toolkit.finance.words import rounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import Charge
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.report import Report
    from toolkit.finance.charges_by_day import DayCharge
    from toolkit.finance.focus_columns import Value
    from toolkit.finance.list_prices import ListPrices

Row = dict[str, "Value"]
_HOUR_PLACES = 9
_PRICE_PLACES = 12
NO_TAGS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})


@dataclass(frozen=True)
class Focus:
    """The rows of one month, and the charges that have none."""

    rows: tuple[Row, ...]
    unknown: int  # charges without a known price


def focus(
    report: Report,
    prices: ListPrices,
    account_tags: Mapping[str, Mapping[str, str]] = NO_TAGS,
) -> Focus:
    """Return the rows of a report.

    `account_tags` has further tags of each account, such as its cost centre. Raises
    FocusPeriodInvalid if the report is not within one month.
    """
    period = billing_period(report.window)
    known = [part for part in charges_by_day(report) if part.charge.price_known]
    unknown = sum(not charge.price_known for charge in report.charges())
    maker = _Maker(report, prices, period, account_tags, _refunded_seconds(report))
    return Focus(tuple(maker.rows(_joined(known))), unknown)


def billing_period(window: Window) -> tuple[str, str]:
    """Return the first moments of a report's month and the next."""
    first = datetime.fromtimestamp(window.since, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    behind = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    if window.until > behind.timestamp():
        raise FocusPeriodInvalid(
            f"the report is from {moment(window.since)} to {moment(window.until)}: a FOCUS file has"
            " one month",
            next_step=f"give --since {first:%Y-%m-%d} --until {behind:%Y-%m-%d}, a file a month",
        )
    return f"{first:%Y-%m-%dT%H:%M:%SZ}", f"{behind:%Y-%m-%dT%H:%M:%SZ}"


def _joined(parts: Sequence[DayCharge]) -> list[DayCharge]:
    """Return the parts, those of one resource and day as one.

    Days that were closed by another cost policy give an instance two charges of one kind.
    """
    joined: dict[tuple[str, int | None, Component, int], DayCharge] = {}
    for part in parts:
        charge = part.charge
        key = charge.instance_id, charge.attempt, charge.component, part.start
        known = joined.get(key)
        joined[key] = (
            part
            if known is None
            else replace(
                known, micro=known.micro + part.micro, seconds=known.seconds + part.seconds
            )
        )
    return [part for part in joined.values() if part.micro or part.seconds]


def _refunded_seconds(report: Report) -> dict[tuple[str, int | None], Fraction]:
    """Return the seconds of a refunded micro-dollar, by instance and attempt.

    The amount is that of all refunds: days that were closed by another cost policy give an
    instance two. Negative, as a refund's amount is.
    """
    seconds: dict[tuple[str, int | None], Fraction] = defaultdict(Fraction)
    micro: dict[tuple[str, int | None], int] = defaultdict(int)
    for cost in report.costs:
        for charge in cost.charges if cost.refund else ():
            key = cost.instance_id, charge.attempt
            seconds[key] += charge.seconds
            micro[key] += charge.micro if charge.component is Component.REFUND else 0
    return {key: seconds[key] / amount for key, amount in micro.items() if amount}


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the rows of one report."""

    report: Report
    prices: ListPrices
    period: tuple[str, str]
    account_tags: Mapping[str, Mapping[str, str]]
    refunded_seconds: Mapping[tuple[str, int | None], Fraction]  # of a micro-dollar
    tags: dict[tuple[int | None, str], str] = field(default_factory=dict)

    def rows(self, parts: Sequence[DayCharge]) -> Iterator[Row]:
        """Yield a row for each part."""
        for part in parts:
            charge = part.charge
            instance = self.report.instances.get(charge.instance_id)
            attempt = None if charge.attempt is None else self.report.attempts[charge.attempt]
            yield {
                **self._constant(part),
                **self._subject(charge, instance, attempt),
                **self._money(part, instance),
                **self._own(charge, instance, attempt),
            }

    def _constant(self, part: DayCharge) -> Row:
        """Return what is the same in all rows of a day."""
        cluster = self.report.cluster
        return {
            "BillingAccountId": cluster,
            "BillingAccountName": cluster,
            "BillingAccountType": "Cluster",
            "BillingCurrency": "USD",
            "BillingPeriodStart": self.period[0],
            "BillingPeriodEnd": self.period[1],
            "ChargeClass": None,
            "ChargeDescription": f"{part.charge.component}: {part.charge.component.about}",
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodStart": iso(part.start),
            "ChargePeriodEnd": iso(part.end),
            "CommitmentDiscountId": None,
            "CommitmentDiscountStatus": None,
            "InvoiceId": None,
            "InvoiceIssuerName": cluster,
            "PricingCurrency": "USD",
            "ProviderName": cluster,  # another one than the issuer would mean: paid elsewhere
        }

    def _subject(self, charge: Charge, instance: Instance | None, attempt: Attempt | None) -> Row:
        """Return what a charge is for, and who pays it."""
        kind = services.service(instance)
        region = self.prices.region if kind.is_of_aws else None
        account = (attempt.account or None) if attempt else None
        return {
            "AvailabilityZone": (instance.zone or None) if instance else None,
            "PublisherName": services.AWS if kind.is_of_aws else self.report.cluster,
            "RegionId": region,
            "RegionName": services.region_name(region) if region else None,
            "ResourceId": self._resource(charge),
            "ResourceName": (instance.node or None) if instance else None,
            "ResourceType": kind.resource_type,
            "ServiceCategory": kind.category,
            "ServiceName": kind.name,
            "ServiceSubcategory": kind.subcategory,
            "SubAccountId": account,
            "SubAccountName": account,
            "SubAccountType": "Slurm account" if account else None,
            "Tags": self._tags(instance, attempt),
        }

    def _resource(self, charge: Charge) -> str:
        """Return an id that no other row of that day has.

        Consumers that replace a row of the same resource and time lose nothing.
        """
        slug = charge.component.value.replace(" ", "-")
        attempt = "" if charge.attempt is None else f"/{charge.attempt}"
        return f"{self.report.cluster}/{charge.instance_id}{attempt}/{slug}"

    def _tags(self, instance: Instance | None, attempt: Attempt | None) -> str:
        pool = instance.pool if instance else ""
        key = None if attempt is None else attempt.key, pool
        if key not in self.tags:
            values = {"cluster": self.report.cluster, "pool": pool}
            if attempt is not None:
                values |= {
                    "account": attempt.account,
                    "user": attempt.user,
                    "partition": attempt.partition,
                    "project": attempt.project,
                    "job_name": attempt.name,
                }
                values = {**self.account_tags.get(attempt.account, {}), **values}
            known = {name: value for name, value in values.items() if value}
            self.tags[key] = json.dumps(known, sort_keys=True)
        return self.tags[key]

    def _money(self, part: DayCharge, instance: Instance | None) -> Row:
        billed = usd(part.micro)
        costs: Row = dict.fromkeys(_COSTS, billed)
        if instance is None:  # a share moves a cost, and nothing was used
            return {
                **costs,
                **dict.fromkeys(_USAGE_COLUMNS),
                "ChargeCategory": "Adjustment",
                "ListCost": billed,
                "ContractedCost": billed,
            }
        hours = rounded(self._seconds(part) / SECONDS_PER_HOUR, _HOUR_PLACES)
        listed = self.prices.listed(instance, part.start)
        contracted = self.prices.contracted(instance, part.start)
        stand_in = _unit_price(billed, hours)
        list_price = stand_in if listed is None else listed
        contracted_price = stand_in if contracted is None else contracted
        return {
            **costs,
            "ChargeCategory": "Usage",
            "ConsumedQuantity": hours,
            "ConsumedUnit": "Hours",
            "PricingQuantity": hours,
            "PricingUnit": "Hours",
            "PricingCategory": "Dynamic" if instance.spot else "Standard",
            "ListUnitPrice": list_price,
            "ListCost": product(list_price, hours),
            "ContractedUnitPrice": contracted_price,
            "PricingCurrencyListUnitPrice": list_price,
            "PricingCurrencyContractedUnitPrice": contracted_price,
            "ContractedCost": product(contracted_price, hours),
            "SkuId": services.sku(instance),
            "SkuMeter": services.meter(instance),
            "SkuPriceId": f"{services.sku(instance)}/{instance.lifecycle}/{self.prices.region}",
            "SkuPriceDetails": services.price_details(instance, self.prices.shapes),
            "x_ListPriceSource": "billed price" if listed is None else "list",
        }

    def _seconds(self, part: DayCharge) -> Fraction:
        charge = part.charge
        if charge.component is not Component.REFUND:
            return part.seconds
        key = charge.instance_id, charge.attempt
        return -part.micro * self.refunded_seconds.get(key, Fraction(0))

    def _own(self, charge: Charge, instance: Instance | None, attempt: Attempt | None) -> Row:
        prices = charge.prices
        number = None if attempt is None else self.report.attempt_numbers[attempt.key]
        return {
            "x_Component": charge.component.value,
            "x_InstanceId": instance.instance_id if instance else None,
            "x_JobAttempt": None if number is None else str(number),
            "x_JobId": attempt.job_id if attempt else None,
            "x_JobState": attempt.state if attempt else None,
            "x_PriceAsOf": iso(prices.as_of) if prices else None,
            "x_PriceSource": " ".join(prices.sources) if prices else None,
        }


_COSTS = ("BilledCost", "EffectiveCost", "PricingCurrencyEffectiveCost")
_USAGE_COLUMNS = (
    "ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit", "PricingCategory",
    "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuMeter", "SkuPriceId", "SkuPriceDetails",
    "PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice", "x_ListPriceSource",
)  # fmt: skip


def product(price: Decimal, hours: Decimal) -> Decimal:
    """Return price times hours as a reader's doubles have it.

    FOCUS asks that the two multiply to the cost, and files of it carry doubles.
    """
    return Decimal(repr(float(price) * float(hours)))


def _unit_price(billed: Decimal, hours: Decimal) -> Decimal:
    """Return what an hour cost, where no list has it."""
    if not hours:
        return Decimal(0)
    return rounded(Fraction(billed) / Fraction(hours), _PRICE_PLACES)
