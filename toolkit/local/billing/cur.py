"""The invoice in the schema of AWS's Cost and Usage Report 2.0.

Columns: https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. An export
selects its columns, so these are a selection too: those that have a value here. A map is JSON text.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from toolkit.local.billing.usage_log import Kind
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.billing.invoice import Invoice, LineItem

COLUMNS: Final = (
    "bill_bill_type",
    "bill_billing_entity",
    "bill_billing_period_end_date",
    "bill_billing_period_start_date",
    "bill_invoice_id",
    "bill_invoicing_entity",
    "bill_payer_account_id",
    "bill_payer_account_name",
    "cost_category",
    "discount",
    "identity_line_item_id",
    "identity_time_interval",
    "line_item_availability_zone",
    "line_item_blended_cost",
    "line_item_blended_rate",
    "line_item_currency_code",
    "line_item_legal_entity",
    "line_item_line_item_description",
    "line_item_line_item_type",
    "line_item_operation",
    "line_item_product_code",
    "line_item_resource_id",
    "line_item_tax_type",
    "line_item_unblended_cost",
    "line_item_unblended_rate",
    "line_item_usage_account_id",
    "line_item_usage_account_name",
    "line_item_usage_amount",
    "line_item_usage_end_date",
    "line_item_usage_start_date",
    "line_item_usage_type",
    "pricing_currency",
    "pricing_public_on_demand_cost",
    "pricing_public_on_demand_rate",
    "pricing_term",
    "pricing_unit",
    "product",
    "product_instance_type",
    "product_operation",
    "product_product_family",
    "product_region_code",
    "product_servicecode",
    "product_usagetype",
    "reservation_reservation_a_r_n",
    "resource_tags",
    "savings_plan_savings_plan_a_r_n",
)

_REGION_CODES = {
    # The prefix of usage types: https://docs.aws.amazon.com/cur/latest/userguide/cur-region-codes.html
    "us-east-1": "",
    "us-east-2": "USE2-",
    "us-west-1": "USW1-",
    "us-west-2": "USW2-",
    "ca-central-1": "CAN1-",
    "eu-west-1": "EU-",
    "eu-west-2": "EUW2-",
    "eu-west-3": "EUW3-",
    "eu-central-1": "EUC1-",
    "eu-north-1": "EUN1-",
    "ap-south-1": "APS3-",
    "ap-southeast-1": "APS1-",
    "ap-southeast-2": "APS2-",
    "ap-northeast-1": "APN1-",
    "ap-northeast-2": "APN2-",
    "sa-east-1": "SAE1-",
}
_FAMILIES = {Kind.INSTANCE: "Compute Instance"}
_NOT_IN_A_KEY = re.compile(r"[^a-z0-9]+")


def as_csv(invoice: Invoice) -> str:
    """Return the export as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(row, invoice.lines))
    return text.getvalue()


def row(line: LineItem) -> dict[str, str]:
    """Return a line item's columns that are not empty."""
    return {**_bill(line), **_identity(line), **_line_item(line), **_product(line)}


def _bill(line: LineItem) -> dict[str, str]:
    begin = datetime.fromtimestamp(line.start, UTC).replace(day=1, hour=0, minute=0, second=0)
    end = (begin + timedelta(days=32)).replace(day=1)
    return {
        "bill_bill_type": "Anniversary",
        "bill_billing_entity": "AWS",
        "bill_billing_period_start_date": _moment(begin.timestamp()),
        "bill_billing_period_end_date": _moment(end.timestamp()),
        "bill_invoice_id": f"local-{begin:%Y-%m}",
        "bill_invoicing_entity": "toolkit local",
        "bill_payer_account_id": ACCOUNT,
        "bill_payer_account_name": "local",
        "cost_category": "{}",
        "discount": "{}",
    }


def _identity(line: LineItem) -> dict[str, str]:
    interval = f"{_second(line.start)}/{_second(line.end)}"
    name = f"{line.resource_id} {line.type} {interval}"
    return {
        "identity_line_item_id": hashlib.sha256(name.encode()).hexdigest()[:52],
        "identity_time_interval": interval,
    }


def _line_item(line: LineItem) -> dict[str, str]:
    return {
        "line_item_availability_zone": line.zone,
        "line_item_blended_cost": f"{line.cost:f}",
        "line_item_blended_rate": f"{line.rate:f}",
        "line_item_currency_code": "USD",
        "line_item_legal_entity": "toolkit local",
        "line_item_line_item_description": _description(line),
        "line_item_line_item_type": "Usage",
        "line_item_operation": _operation(line),
        "line_item_product_code": _product_code(line),
        "line_item_resource_id": _resource_id(line),
        "line_item_unblended_cost": f"{line.cost:f}",
        "line_item_unblended_rate": f"{line.rate:f}",
        "line_item_usage_account_id": ACCOUNT,
        "line_item_usage_account_name": "local",
        "line_item_usage_amount": f"{line.quantity:f}",
        "line_item_usage_start_date": _moment(line.start),
        "line_item_usage_end_date": _moment(line.end),
        "line_item_usage_type": usage_type(line),
        "resource_tags": _tags(line.tags),
    }


def _product(line: LineItem) -> dict[str, str]:
    is_instance = line.kind is Kind.INSTANCE
    return {
        "pricing_currency": "USD",
        "pricing_public_on_demand_cost": f"{(line.list_rate * line.quantity):f}",
        "pricing_public_on_demand_rate": f"{line.list_rate:f}",
        "pricing_term": "" if line.market == "spot" else "OnDemand",
        "pricing_unit": "Hrs" if is_instance else "GB-Mo",
        "product": json.dumps({"product_name": _product_name(line)}),
        "product_instance_type": line.type if is_instance else "",
        "product_operation": _operation(line),
        "product_product_family": _FAMILIES.get(line.kind, "Storage"),
        "product_region_code": line.region,
        "product_servicecode": _product_code(line),
        "product_usagetype": usage_type(line),
    }


def usage_type(line: LineItem) -> str:
    """Return AWS's name of what is used, such as `USW2-SpotUsage:g5.xlarge`."""
    prefix = _REGION_CODES.get(line.region, f"{line.region}-")
    if line.kind is Kind.INSTANCE:
        return f"{prefix}{'SpotUsage' if line.market == 'spot' else 'BoxUsage'}:{line.type}"
    if line.kind is Kind.VOLUME:
        suffix = "" if line.type == "standard" else f".{line.type}"
        return f"{prefix}EBS:VolumeUsage{suffix}"
    throughput = line.type.partition(".")[2]
    return f"{prefix or 'USE1-'}Storage{f'.SSD.{throughput}' if throughput else ''}"


def _operation(line: LineItem) -> str:
    if line.kind is Kind.INSTANCE:
        return "RunInstances:SV001" if line.market == "spot" else "RunInstances"
    if line.kind is Kind.VOLUME:
        return "CreateVolume" if line.type == "standard" else f"CreateVolume-{line.type.title()}"
    return "CreateFileSystem:Lustre"


def _description(line: LineItem) -> str:
    if line.market == "spot":
        free = "" if line.rate else ", interrupted in its first hour"
        return f"{line.type} Linux/UNIX Spot Instance-hour in {line.zone}{free}"
    if line.kind is Kind.INSTANCE:
        return f"${line.rate:f} per On Demand Linux {line.type} Instance Hour"
    return f"${line.rate:f} per GB-month of {line.type} provisioned storage"


def _product_code(line: LineItem) -> str:
    return "AmazonFSx" if line.kind is Kind.FILE_SYSTEM else "AmazonEC2"


def _product_name(line: LineItem) -> str:
    is_fsx = line.kind is Kind.FILE_SYSTEM
    return "Amazon FSx" if is_fsx else "Amazon Elastic Compute Cloud"


def _resource_id(line: LineItem) -> str:
    if line.kind is not Kind.FILE_SYSTEM:
        return line.resource_id
    return f"arn:aws:fsx:{line.region}:{ACCOUNT}:file-system/{line.resource_id}"


def _tags(tags: Mapping[str, str]) -> str:
    """Return the map of tags: `toolkit:cluster` has the key `user_toolkit_cluster`.

    https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2-resource-tags.html
    """
    return json.dumps({_tag_key(key): value for key, value in sorted(tags.items())})


def _tag_key(key: str) -> str:
    name = _NOT_IN_A_KEY.sub("_", key.lower()).strip("_")
    return name if key.startswith("aws:") else f"user_{name}"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
