"""burst.json is read back by the code that runs on the head: the two must agree."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins import config as burst
from tests.unit.render.render_samples import FACTS, PRICES, a_config
from toolkit.errors import RenderError
from toolkit.render.burst import burst_json
from toolkit.render.prices import PriceTable


def test_the_head_reads_what_was_written():
    read = burst.parse(json.loads(burst_json(a_config(), FACTS, PRICES)))
    assert (read.cluster, read.bucket) == ("demo", FACTS.bucket)
    assert sorted(read.pools) == ["cpu", "gpu"]
    assert [str(node) for node in read.pools["gpu"].nodes][-1] == "gpu-004"
    assert read.pools["gpu"].launch_template == "demo-gpu"
    assert read.resume_timeout == 180


def test_offerings_are_tried_in_their_order_each_in_every_zone():
    """Spot everywhere comes before on-demand anywhere."""
    pool = burst.parse(json.loads(burst_json(a_config(), FACTS, PRICES))).pools["gpu"]
    assert [(o.lifecycle.value, o.zone, o.price) for o in pool.offerings] == [
        ("spot", "us-east-1a", "0.4024"),
        ("spot", "us-east-1b", "0.3911"),
        ("on-demand", "us-east-1a", "1.006"),
        ("on-demand", "us-east-1b", "1.006"),
    ]


def test_a_pool_knows_the_subnets_of_its_own_zones_only():
    pools = json.loads(burst_json(a_config(), FACTS, PRICES))["pools"]
    assert pools["cpu"]["subnets"] == {"us-east-1b": "subnet-0bb"}


def test_a_zone_without_a_subnet_is_an_error_not_a_hole():
    facts = replace(FACTS, subnets={"us-east-1a": "subnet-0aa"})
    with pytest.raises(RenderError, match=r"pools\.gpu: the stack has no subnet in us-east-1b"):
        burst_json(a_config(), facts, PRICES)


def test_on_aws_there_is_no_endpoint():
    config = a_config(aws={"region": "us-east-1"})
    assert json.loads(burst_json(config, FACTS, PRICES))["endpoint_url"] is None


def test_a_tiny_price_is_written_without_an_exponent():
    """Decimal prints 1E-7; the tag and its readers know digits and a point."""
    prices = PriceTable({"g5.xlarge": Decimal("1E-7"), "c7i.4xlarge": Decimal("1E+1")})
    pools = json.loads(burst_json(a_config(), FACTS, prices))["pools"]
    assert pools["gpu"]["offerings"][0]["price"] == "0.0000001"
    assert pools["cpu"]["offerings"][0]["price"] == "10"


def test_spot_without_a_known_price_counts_as_on_demand():
    prices = PriceTable({"g5.xlarge": Decimal("1.006")})
    assert prices.usd_per_hour("g5.xlarge", "spot", "us-east-1a") == Decimal("1.006")
    assert prices.usd_per_hour("p5.48xlarge", "spot", "us-east-1a") == 0
