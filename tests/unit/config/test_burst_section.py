"""The rules of the burst governor in cluster.yaml, and the head's part of them."""

import json
from decimal import Decimal

import pytest

from slurmplugins.config import burst as burst_config, governor
from tests.unit.config.test_load import GOOD, problems
from tests.unit.render.render_samples import FACTS, PRICES, a_config
from toolkit.config import parse
from toolkit.render.burst import burst_json

RACKS = GOOD.replace(
    "partitions:\n", "partitions:\n  cloud: {pools: [gpu]}\n  rack: {pools: [gpu]}\n"
)
RULE = """\
burst:
  rack:
    partition: cloud
    accounts:
      vision: {usd_per_month: 500}
"""


def test_the_common_case_is_short():
    (rule,) = parse(RACKS + RULE).burst.values()
    assert (rule.after, rule.soon, rule.deadline, rule.data.at) == ("30m", "15m", True, "s3")
    assert parse(RACKS).burst == {}


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("partition: cloud", "partition: clout", "burst.rack.partition", "did you mean 'cloud'"),
        ("partition: cloud", "partition: rack", "burst.rack.partition", "another partition"),
        ("  rack:\n    p", "  rock:\n    p", "burst.rock", "did you mean 'rack'"),
        ("vision:", "visions:", "burst.rack.accounts.visions", "did you mean 'vision'"),
        ("500", "0", "burst.rack.accounts.vision.usd_per_month", "above 0"),
        ("500", "much", "burst.rack.accounts.vision.usd_per_month", "above 0"),
        (
            "partition: cloud",
            "partition: cloud\n    after: soon",
            "burst.rack.after",
            "a wait such",
        ),
        ("partition: cloud", "partition: cloud\n    afer: 5m", "burst.rack.afer", "unknown key"),
        (
            "partition: cloud",
            "partition: cloud\n    data: {at: mars}",
            "burst.rack.data.at",
            "site",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, path: str, words: str):
    text = RACKS + RULE.replace(old, new)
    found = problems(text)
    assert list(found) == [path]
    line, message = found[path]
    assert words in message
    assert path.rpartition(".")[2] in text.splitlines()[line - 1]


def test_an_account_is_needed():
    assert "burst.rack.accounts" in problems(RACKS + "burst: {rack: {partition: cloud}}\n")


def test_a_cloud_that_slurm_would_try_first_is_refused():
    text = RACKS.replace("cloud: {pools: [gpu]}", "cloud: {pools: [gpu], priority: 2}")
    assert "before racks" in problems(text + RULE)["burst.rack.partition"][1]


def test_the_head_reads_the_rules_that_were_rendered():
    section = {
        "any": {
            "partition": "spot",
            "after": "10m",
            "soon": "90s",
            "qos": {"urgent": "5m"},
            "accounts": {"vision": {"usd_per_month": 12.5}},
            "data": {"at": "site", "mbit_per_second": 400, "usd_per_gb": 0.02},
        }
    }
    document = json.loads(burst_json(a_config(burst=section), FACTS, PRICES))
    assert burst_config.parse(document).cluster == "demo"
    config = governor.parse(document)
    assert config.boot == 180
    assert config.tail == 30 + 60
    assert config.rules["any"] == governor.RackRule(
        rack="any",
        cloud="spot",
        after=600.0,
        budgets={"vision": Decimal("12.5")},
        soon=90.0,
        qos={"urgent": 300.0},
        data=governor.DataRule(True, 400.0, Decimal("0.02")),
    )


def test_a_cluster_without_rules_knows_where_those_that_were_spent():
    config = governor.parse(json.loads(burst_json(a_config(), FACTS, PRICES)))
    assert (config.rules, config.folder) == ({}, "/srv/head/governor")
