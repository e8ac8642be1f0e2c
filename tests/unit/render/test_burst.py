"""burst.json, read back by the engine's own code."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.config import burst
from slurmplugins.model.instance import Policy, PolicyName
from tests.unit.render.render_samples import FACTS, GPU_POOL, PRICES, a_config
from toolkit.errors import RenderError
from toolkit.prices.contracts import discounted
from toolkit.render.burst import burst_json
from toolkit.render.prices import PriceTable


def test_burst_json_is_parsed_by_the_engine():
    read = burst.parse(json.loads(burst_json(a_config(), FACTS, PRICES)))
    assert (read.cluster, read.bucket) == ("demo", FACTS.bucket)
    assert sorted(read.pools) == ["cpu", "gpu"]
    assert [str(node) for node in read.pools["gpu"].nodes][-1] == "gpu-004"
    assert read.pools["gpu"].launch_template == "demo.gpu"
    assert read.resume_timeout == 180


def test_offerings_are_ordered_by_preference_and_then_by_zone():
    """Put spot in every zone before on-demand in any zone."""
    pool = burst.parse(json.loads(burst_json(a_config(), FACTS, PRICES))).pools["gpu"]
    assert [(o.lifecycle.value, o.zone, o.price) for o in pool.offerings] == [
        ("spot", "us-east-1a", "0.4024"),
        ("spot", "us-east-1b", "0.3911"),
        ("on-demand", "us-east-1a", "1.006"),
        ("on-demand", "us-east-1b", "1.006"),
    ]


def test_a_pool_has_the_subnets_of_its_own_zones_only():
    pools = json.loads(burst_json(a_config(), FACTS, PRICES))["pools"]
    assert pools["cpu"]["subnets"] == {"us-east-1b": "subnet-0bb"}


def test_a_zone_without_a_subnet_is_an_error():
    facts = replace(FACTS, subnets={"us-east-1a": "subnet-0aa"})
    with pytest.raises(RenderError, match=r"pools\.gpu: the stack has no subnet in us-east-1b"):
        burst_json(a_config(), facts, PRICES)


def test_the_endpoint_url_is_empty_on_aws():
    config = a_config(aws={"region": "us-east-1"})
    assert json.loads(burst_json(config, FACTS, PRICES))["endpoint_url"] is None


def test_a_tiny_price_is_written_without_an_exponent():
    """Write digits and a point.

    Decimal would print 1E-7, which no reader of the price tag accepts.
    """
    prices = PriceTable({"g5.xlarge": Decimal("1E-7"), "c7i.4xlarge": Decimal("1E+1")})
    pools = json.loads(burst_json(a_config(), FACTS, prices))["pools"]
    assert pools["gpu"]["offerings"][0]["price"] == "0.0000001"
    assert pools["cpu"]["offerings"][0]["price"] == "10"


def test_the_engine_reads_a_price_with_a_discount():
    usd = discounted(Decimal("10.4926"), Decimal(15))
    prices = PriceTable(on_demand={"g5.xlarge": usd})
    pool = burst.parse(json.loads(burst_json(a_config(), FACTS, prices))).pools["gpu"]
    assert {Decimal(item.price) for item in pool.offerings} == {usd}


def test_a_spot_offering_without_a_known_price_has_the_on_demand_price():
    prices = PriceTable({"g5.xlarge": Decimal("1.006")})
    assert prices.usd_per_hour("g5.xlarge", "spot", "us-east-1a") == Decimal("1.006")
    assert prices.usd_per_hour("p5.48xlarge", "spot", "us-east-1a") == 0


def test_policies_and_reservations_are_parsed_as_rendered():
    pool = {
        **GPU_POOL,
        "offerings": [
            {
                "type": "g5.xlarge",
                "capacity": "capacity-block",
                "zone": "us-east-1b",
                "reservation": "cr-0abc",
            },
            *GPU_POOL["offerings"],
        ],
        "type_choice": "in-order",
        "max_spot_share": 0.5,
        "placement_group": True,
    }
    config = a_config(
        aws={"region": "us-east-1", "instance_rate": {"burst": 5000, "per_second": 10.0}},
        pools={"gpu": pool},
        partitions={
            "spot": {"pools": ["gpu"], "policy": "on-demand-after 10m"},
            "plain": {"pools": ["gpu"]},
        },
    )
    read = burst.parse(json.loads(burst_json(config, FACTS, PRICES)))
    gpu = read.pools["gpu"]
    assert read.policy_of("spot") == Policy(PolicyName.ON_DEMAND_AFTER, 600.0)
    assert read.policy_of("plain") == read.policy_of("unheard-of") == Policy()
    assert read.instance_rate == (5000, 10)
    assert [item.key for item in gpu.offerings][:2] == [
        "cr-0abc:g5.xlarge:us-east-1b",
        "spot:g5.xlarge:us-east-1a",
    ]
    assert gpu.offerings[0].block
    assert (gpu.one_by_one, gpu.max_spot_share) == (True, 0.5)
    assert gpu.zone_templates["us-east-1a"] == "demo.gpu.us-east-1a"
