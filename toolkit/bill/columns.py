"""The columns of a Cost and Usage Report that the match reads.

Names and meanings are those of AWS's table dictionary:
https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html
Older reports have `lineItem/UnblendedCost` where CUR 2.0 has `line_item_unblended_cost`.
Athena's rule turns one into the other:
https://docs.aws.amazon.com/cur/latest/userguide/cur-ate-run.html
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import tags
from toolkit.bill.errors import BillColumnsMissing, BillUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Column(StrEnum):
    """A column, by its name in CUR 2.0."""

    ID = "identity_line_item_id"
    TYPE = "line_item_line_item_type"
    RESOURCE = "line_item_resource_id"
    START = "line_item_usage_start_date"
    END = "line_item_usage_end_date"
    USAGE_TYPE = "line_item_usage_type"
    OPERATION = "line_item_operation"
    PRODUCT = "line_item_product_code"
    AMOUNT = "line_item_usage_amount"
    UNBLENDED = "line_item_unblended_cost"
    CURRENCY = "line_item_currency_code"
    PERIOD = "bill_billing_period_start_date"
    BILL_TYPE = "bill_bill_type"
    INVOICE = "bill_invoice_id"
    TAGS = "resource_tags"
    CLUSTER_TAG = "resource_tags_user_toolkit_cluster"
    SAVINGS_EFFECTIVE = "savings_plan_savings_plan_effective_cost"
    SAVINGS_COMMITTED = "savings_plan_total_commitment_to_date"
    SAVINGS_USED = "savings_plan_used_commitment"
    RESERVATION = "reservation_reservation_a_r_n"
    RESERVATION_EFFECTIVE = "reservation_effective_cost"
    UNUSED_UPFRONT = "reservation_unused_amortized_upfront_fee_for_billing_period"
    UNUSED_RECURRING = "reservation_unused_recurring_fee"


REQUIRED: Final = (
    Column.ID,
    Column.TYPE,
    Column.RESOURCE,
    Column.START,
    Column.USAGE_TYPE,
    Column.OPERATION,
    Column.AMOUNT,
    Column.UNBLENDED,
    Column.CURRENCY,
    Column.PERIOD,
    Column.BILL_TYPE,
    Column.INVOICE,
)

_BEFORE_CAPITAL = re.compile(r"(?=[A-Z])")
_OTHER = re.compile(r"[^a-z0-9]+")
_TAG_PREFIX = "user_"


def plain_name(name: str) -> str:
    """Return the name of a column or tag as in CUR 2.0."""
    if "/" in name:
        name = _BEFORE_CAPITAL.sub("_", name)
    return _OTHER.sub("_", name.lower()).strip("_")


_CLUSTER_KEY: Final = plain_name(tags.CLUSTER)


def is_cluster_key(key: str) -> bool:
    """Return whether a key of `resource_tags` is our tag of the cluster."""
    return plain_name(key).removeprefix(_TAG_PREFIX) == _CLUSTER_KEY


def find_columns(path_name: str, names: Sequence[str]) -> Mapping[Column, int]:
    """Return the place of each known column in a file's header.

    Raises BillColumnsMissing, and BillUnreadable if a column stands there twice.
    """
    places: dict[Column, int] = {}
    known = {column.value: column for column in Column}
    for place, name in enumerate(names):
        column = known.get(plain_name(name))
        if column is None:
            continue
        if column in places:
            raise BillUnreadable(f"{path_name}: the column {column} stands there twice")
        places[column] = place
    missing = [column.value for column in REQUIRED if column not in places]
    if Column.TAGS not in places and Column.CLUSTER_TAG not in places:
        missing.append(Column.TAGS.value)
    if missing:
        raise missing_columns(path_name, missing)
    return places


def missing_columns(path_name: str, missing: Sequence[str]) -> BillColumnsMissing:
    """Return the error that names the missing columns."""
    next_step = "add them to the export's query in AWS Data Exports"
    if Column.RESOURCE in missing:
        next_step += f", and include resource IDs: {Column.RESOURCE} comes with these alone"
    return BillColumnsMissing(f"{path_name} lacks {', '.join(missing)}", next_step=next_step)
