"""The columns of the FOCUS file, in its order.

They are FOCUS 1.2's mandatory columns, and the conditional ones that a cluster has: the spec's
repository, FOCUS_Spec, has a page for each in `specification/columns`. The cluster sells no
commitment discounts and no capacity reservations, so most columns of these are left out.
focus-validator asks for two of them, and for those of the pricing currency, in any file. Our own
columns begin with `x_`, as the attribute "Column Handling" says.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

Value = str | Decimal | None
"""A cell. Moments are text in ISO 8601 already."""


class Kind(StrEnum):
    """The type of a column in Parquet."""

    TEXT = "VARCHAR"
    NUMBER = "DOUBLE"  # as AWS's own FOCUS export has; focus-validator knows no DECIMAL(p,s)
    MOMENT = "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its type."""

    name: str
    kind: Kind = Kind.TEXT


_NUMBERS = frozenset(
    {
        "BilledCost", "ConsumedQuantity", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
        "ListCost", "ListUnitPrice", "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice", "PricingQuantity",
    }
)  # fmt: skip
_MOMENTS = frozenset(
    {"BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"}
)
_NAMES = (
    "AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName",
    "BillingAccountType", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "CommitmentDiscountId", "CommitmentDiscountStatus", "ConsumedQuantity",
    "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceId",
    "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingCurrency",
    "PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice", "PricingQuantity", "PricingUnit", "ProviderName",
    "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter",
    "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags",
    "x_Component", "x_InstanceId", "x_JobAttempt", "x_JobId", "x_JobState", "x_ListPriceSource",
    "x_PriceAsOf", "x_PriceSource",
)  # fmt: skip


def _column(name: str) -> Column:
    kind = Kind.NUMBER if name in _NUMBERS else Kind.MOMENT if name in _MOMENTS else Kind.TEXT
    return Column(name, kind)


COLUMNS: Final = tuple(map(_column, _NAMES))

CRITERIA: Final = (
    "ACCOUNT_NAMING_SUPPORTED", "AVAILABILITY_ZONE_SUPPORTED",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED", "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "NEGOTIATED_PRICING_SUPPORTED", "PUBLIC_PRICE_LIST_SUPPORTED", "REGION_SUPPORTED",
    "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "SUB_ACCOUNT_SUPPORTED", "TAGGING_SUPPORTED",
    "UNIT_PRICING_SUPPORTED", "USAGE_MEASUREMENT_SUPPORTED",
)  # fmt: skip
"""What the cluster supports, in the words of focus-validator's `--applicability-criteria`."""
