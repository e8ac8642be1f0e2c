"""Measured amounts through the local cloud: the head's program, its role, the CLI.

The values of past days are put where AWS's own services put them. slurmdbd is a fake.
"""

from __future__ import annotations

import csv
import json
import time
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from slurmplugins.model import records
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_records import RecordsHead, clock_of_yesterday, toolkit
from toolkit import cli
from toolkit.accounting.storage import NO_METRIC
from toolkit.config import load
from toolkit.deploy.stack_outputs import stack_facts
from toolkit.local.options import ACCOUNT

pytestmark = LEAVES_A_CLOUD
HOUR, DAY, GIB = 3600, 86_400, 2**30
CLOCK = clock_of_yesterday()
TODAY = int(CLOCK.now()) // DAY * DAY
FIRST = TODAY - 3 * DAY
PRICES = """
prices:
  as_of: 2026-11-01
  storage: {s3_usd_per_gb_month: 0.023}
  network: {nat_usd_per_hour: 0.045, nat_usd_per_gb: 0.045, cross_zone_usd_per_gb: 0.01}
"""


def publish(name, dimensions, day, value):
    """Give CloudWatch a value that AWS alone puts there."""
    from moto.cloudwatch.models import MetricDatum, cloudwatch_backends  # after toolkit.local.cloud

    at = datetime.fromtimestamp(day + (HOUR if "Nat" in str(dimensions) else 0), UTC)
    pairs = [{"Name": key, "Value": text} for key, text in dimensions.items()]
    datum = MetricDatum("AWS", name, value, pairs, at.replace(tzinfo=None))
    cloudwatch_backends[ACCOUNT]["us-east-1"].metric_data.append(datum)


@pytest.fixture
def head(config, tmp_path, capsys, monkeypatch):
    """A head of three days, with prices and a NAT gateway."""
    monkeypatch.setenv("TOOLKIT_USAGE_STORE", str(tmp_path / "usage"))
    monkeypatch.setenv("TOOLKIT_BILLS", str(tmp_path / "bills"))
    config.edit("network:\n", "network:\n  nat_subnet: 10.42.9.0/28\n")
    config.edit("slurm:\n", f"{PRICES}slurm:\n")
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    folder = tmp_path / "head"
    folder.mkdir()
    head = RecordsHead(config, folder, CLOCK)
    facts = stack_facts(load(config.path), config.actor.clients)
    assert facts.reads_metrics
    head.nat_gateway = facts.nat_gateway
    head.add_life("i-old", FIRST, TODAY + HOUR, node="head", pool="head")
    for day in range(FIRST, TODAY, DAY):
        for bucket in (head.stack.bucket, head.bucket):
            where = {"BucketName": bucket, "StorageType": "StandardStorage"}
            publish("BucketSizeBytes", where, day, 360 * GIB)
        for name in records.NAT_METRICS:
            publish(name, {"NatGatewayId": facts.nat_gateway}, day, 50 * GIB)
    return head


def printed(config, capsys, *words):
    """Return what a command prints as JSON."""
    capsys.readouterr()
    assert cli.run([*words, "--config", str(config.path), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def day_of(second):
    return time.strftime("%Y-%m-%d", time.gmtime(second))


def amounts(made):
    return {row["instance"]: row["usd"] for row in made["charges"]}


def test_measured_amounts_are_recorded_reported_and_closed(head, capsys, tmp_path):
    config = head.config
    ec2 = head.stack.config_client("ec2")
    (gateway,) = ec2.describe_nat_gateways()["NatGateways"]
    assert head.nat_gateway == gateway["NatGatewayId"]
    head.write()
    s3 = head.stack.config_client("s3")
    listed = s3.list_objects_v2(Bucket=head.bucket, Prefix=records.METRICS)["Contents"]
    days = [records.parse_key(item["Key"]).since for item in listed]
    assert days == [FIRST, FIRST + DAY, FIRST + 2 * DAY]

    focus = tmp_path / "focus.csv"
    span = ("report", "--since", day_of(FIRST), "--until", day_of(FIRST + 2 * DAY))
    computed = printed(config, capsys, *span, "--focus", str(focus))
    found = amounts(computed)
    # Two buckets of 360 GiB for two days; a month has 28 to 31.
    assert 0.023 * 720 * 2 / 31 < float(found["objects"]) <= 0.023 * 720 * 2 / 28
    assert found["NAT traffic"] == "9.000000", "2 days of twice 50 GiB"
    assert found["traffic between zones"] is None
    assert f"traffic between zones: {NO_METRIC}" in computed["notes"]
    rows = list(csv.DictReader(focus.read_text().splitlines()))
    stored = [row for row in rows if row["SkuId"] == "storage/S3"]
    assert sum(Decimal(row["BilledCost"]) for row in stored) == Decimal(found["objects"])
    assert {row["ServiceName"] for row in stored} == {"Amazon Simple Storage Service"}

    assert printed(config, capsys, "usage", "close")["days"]
    closed = printed(config, capsys, *span)
    assert closed["closed"]["is_whole"]
    assert (amounts(closed), closed["total"]) == (found, computed["total"])
    head.write()
    assert printed(config, capsys, "usage", "close")["days"] == []
