"""The invoice in the schema of CUR 2.0."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pytest

from tests.unit.local.billing.test_invoice import T0, Prices, instance, volume
from toolkit.local.billing import cur, invoice
from toolkit.local.billing.usage_log import Kind, UsageEvent


def rows(events, **more):
    made = invoice.make(events, Prices(), since=0, until=T0 + 10**6, **more)
    return made, list(csv.DictReader(io.StringIO(cur.as_csv(made))))


def test_the_rows_sum_to_the_invoice_and_have_awss_columns():
    life = instance((0, "pending"), (60, "running"), (9000, "shutting-down"))
    made, all_rows = rows([*life, *volume((0, 100), (9000, 0))])
    assert sum(Decimal(row["line_item_unblended_cost"]) for row in all_rows) == made.total > 0
    assert {tuple(row) for row in all_rows} == {cur.COLUMNS}
    assert len({row["identity_line_item_id"] for row in all_rows}) == len(all_rows)


def test_a_spot_row_says_what_aws_says():
    row = rows(instance((0, "running"), (600, "shutting-down")))[1][0]
    said = {
        "identity_time_interval": "2026-11-21T10:00:00Z/2026-11-21T10:10:00Z",
        "bill_billing_period_start_date": "2026-11-01T00:00:00.000Z",
        "bill_billing_period_end_date": "2026-12-01T00:00:00.000Z",
        "line_item_line_item_type": "Usage",
        "line_item_product_code": "AmazonEC2",
        "line_item_usage_type": "SpotUsage:g5.xlarge",
        "line_item_operation": "RunInstances:SV001",
        "line_item_resource_id": "i-1",
        "line_item_availability_zone": "us-east-1a",
        "line_item_usage_start_date": "2026-11-21T10:00:00.000Z",
        "line_item_usage_end_date": "2026-11-21T10:10:00.000Z",
        "line_item_usage_amount": "0.1666666667",
        "line_item_unblended_rate": "0.36",
        "line_item_unblended_cost": "0.0600000000",
        "line_item_currency_code": "USD",
        "pricing_unit": "Hrs",
        "pricing_term": "",
    }
    assert {name: row[name] for name in said} == said
    assert json.loads(row["resource_tags"]) == {"user_toolkit_cluster": "demo"}


@pytest.mark.parametrize(
    ("region", "usage_type"),
    [("us-west-2", "USW2-BoxUsage:g5.xlarge"), ("us-east-1", "BoxUsage:g5.xlarge")],
)
def test_a_usage_type_begins_with_its_region(region, usage_type):
    life = [
        UsageEvent(T0, "i-1", Kind.INSTANCE, state, region, f"{region}a", "g5.xlarge", "on-demand")
        for state in ("running", "shutting-down")
    ]
    row = rows(life)[1][0]
    assert row["line_item_usage_type"] == usage_type
    assert row["pricing_term"] == "OnDemand"


def test_storage_has_its_service_and_unit():
    system = UsageEvent(
        T0, "fs-1", Kind.FILE_SYSTEM, "available", "us-east-1", "", "PERSISTENT_2.125", gib=1200
    )
    _, (first, *_, last) = rows([*volume((0, 8), (600, 0)), system])
    assert (first["line_item_usage_type"], first["pricing_unit"]) == (
        "EBS:VolumeUsage.gp3",
        "GB-Mo",
    )
    assert last["line_item_product_code"] == "AmazonFSx"
    assert last["line_item_resource_id"] == "arn:aws:fsx:us-east-1:123456789012:file-system/fs-1"


def test_an_interruption_in_the_first_hour_is_a_row_without_cost():
    life = instance((0, "running"), (600, "shutting-down", "Server.SpotInstanceTermination"))
    (row,) = rows(life)[1]
    assert Decimal(row["line_item_unblended_cost"]) == 0
    assert row["line_item_usage_amount"] == "0.1666666667"


def test_tags_of_aws_keep_their_prefix():
    life = instance((0, "running"), (600, "shutting-down"))
    tags = {"aws:ec2launchtemplate:id": "lt-1", "Name": "demo"}
    last = UsageEvent(
        T0 + 700, "i-1", Kind.INSTANCE, "terminated", "us-east-1", "us-east-1a", "g5.xlarge",
        "spot", tags=tags,
    )  # fmt: skip
    row = rows([*life, last])[1][0]
    assert json.loads(row["resource_tags"]) == {
        "aws_ec2launchtemplate_id": "lt-1",
        "user_name": "demo",
    }
