"""The class of each line of a bill, and the cost that counts for it. Pure.

A line has exactly one class, so the classes add up to the file whatever stands in it.
Line item types: https://docs.aws.amazon.com/cur/latest/userguide/Lineitem-columns.html
Effective cost is what AWS calls amortized:
https://docs.aws.amazon.com/cur/latest/userguide/cur-sp.html
https://docs.aws.amazon.com/cur/latest/userguide/reservation-columns.html
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from toolkit.bill.amounts import ZERO

if TYPE_CHECKING:
    from collections.abc import Collection
    from decimal import Decimal

    from toolkit.bill.lines import BillLine


class LineClass(StrEnum):
    """A kind of line, in the order of the output."""

    INSTANCE = "instances"
    RESOURCE = "other resources"
    CREDIT = "credits"
    REFUND = "refunds"
    DISCOUNT = "discounts"
    COMMITMENT = "commitments"
    OTHER_CLUSTER = "other clusters"
    OTHER_USAGE = "other usage"
    FEE = "fees"
    TAX = "taxes"
    OTHER_TYPE = "unknown types"
    COPY = "copies"
    SET_ASIDE = "set aside"

    @property
    def about(self) -> str:
        """Return the meaning of the class, in one sentence."""
        return _ABOUT[self]


_ABOUT = {
    LineClass.INSTANCE: "Hours of the cluster's instances: they are held to the report.",
    LineClass.RESOURCE: "Volumes, file systems and traffic of the cluster.",
    LineClass.CREDIT: "Credits of AWS.",
    LineClass.REFUND: "Refunds of AWS.",
    LineClass.DISCOUNT: "Discounts that AWS writes as lines of their own.",
    LineClass.COMMITMENT: "Fees of savings plans and reservations; they are in no match.",
    LineClass.OTHER_CLUSTER: "Usage with the tag of another cluster.",
    LineClass.OTHER_USAGE: "Usage of the AWS account without the tag of a cluster.",
    LineClass.FEE: "Support and other fees.",
    LineClass.TAX: "Taxes.",
    LineClass.OTHER_TYPE: "Lines of a type that the toolkit does not know.",
    LineClass.COPY: "Rows that stand in the files again, with the same line item id.",
    LineClass.SET_ASIDE: "Rows whose cost or time can't be read: in no sum.",
}

REFUNDING: Final = frozenset({LineClass.CREDIT, LineClass.REFUND, LineClass.DISCOUNT})
"""Classes that change the cost of a resource by lines of their own."""

_USAGE: Final = frozenset({"Usage", "SavingsPlanCoveredUsage", "DiscountedUsage"})
_BY_TYPE: Final = {
    "Credit": LineClass.CREDIT,
    "Refund": LineClass.REFUND,
    "Tax": LineClass.TAX,
    "Fee": LineClass.FEE,
    "RIFee": LineClass.COMMITMENT,
    "SavingsPlanNegation": LineClass.COMMITMENT,
    "SavingsPlanRecurringFee": LineClass.COMMITMENT,
    "SavingsPlanUpfrontFee": LineClass.COMMITMENT,
}
_INSTANCE_HOURS = re.compile(r"(?:^|-)(?:Box|Spot|Dedicated|HostBox)Usage(?::|\Z)")
"""A usage type such as `BoxUsage:g5.xlarge` or, elsewhere, `EUC1-SpotUsage:g5.xlarge`."""

_PRICINGS: Final = {"SavingsPlanCoveredUsage": "savings plan", "DiscountedUsage": "reservation"}


def classify(line: BillLine, cluster: str, instance_ids: Collection[str]) -> LineClass:
    """Return the class of a line; its further copies have their own."""
    if not is_readable(line):
        return LineClass.SET_ASIDE
    if line.item_type == "Fee" and line.reserved:
        return LineClass.COMMITMENT
    if line.item_type not in _USAGE:
        is_discount = line.item_type.endswith("Discount")
        other = LineClass.DISCOUNT if is_discount else LineClass.OTHER_TYPE
        return _BY_TYPE.get(line.item_type, other)
    if is_ours(line, cluster, instance_ids):
        return LineClass.INSTANCE if _is_instance_time(line) else LineClass.RESOURCE
    return LineClass.OTHER_USAGE if line.cluster is None else LineClass.OTHER_CLUSTER


def is_ours(line: BillLine, cluster: str, instance_ids: Collection[str]) -> bool:
    """Return whether the cluster's report must answer for a line.

    The instance ledger knows better than a tag, which AWS adds from its activation on.
    """
    return line.resource in instance_ids or line.cluster == cluster


def is_readable(line: BillLine) -> bool:
    """Return whether the cost and the time of a line are known."""
    if None in {line.unblended, line.start, line.period} or not line.currency:
        return False
    if line.item_type == "SavingsPlanCoveredUsage":
        return line.savings_effective is not None
    return line.item_type != "DiscountedUsage" or line.reservation_effective is not None


def effective_cost(line: BillLine) -> Decimal:
    """Return a readable line's cost, with its part of commitments.

    Their fees are in the lines that they cover, so a fee line has its unused part alone.
    """
    match line.item_type:
        case "SavingsPlanCoveredUsage":
            cost = line.savings_effective
        case "DiscountedUsage":
            cost = line.reservation_effective
        case "SavingsPlanRecurringFee":
            cost = line.unused_savings
        case "RIFee":
            cost = line.unused_reservation
        case "SavingsPlanNegation" | "SavingsPlanUpfrontFee":
            cost = ZERO
        case "Fee" if line.reserved:
            cost = ZERO
        case _:
            cost = line.unblended
    return ZERO if cost is None else cost


def unused_is_unknown(line: BillLine) -> bool:
    """Return whether the export lacks the unused part of a fee."""
    return (line.item_type == "SavingsPlanRecurringFee" and line.unused_savings is None) or (
        line.item_type == "RIFee" and line.unused_reservation is None
    )


def pricing(line: BillLine) -> str:
    """Return how an instance's hours were bought."""
    if line.item_type in _PRICINGS:
        return _PRICINGS[line.item_type]
    return "spot" if "SpotUsage" in line.usage_type else "on-demand"


def _is_instance_time(line: BillLine) -> bool:
    return line.resource.startswith("i-") and bool(_INSTANCE_HOURS.search(line.usage_type))
