"""`toolkit prices`, from command line to printed text and written file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.config.test_load import GOOD
from toolkit.commands import prices
from toolkit.config import load
from toolkit.prices.errors import PricesError

JOIN = Path(__file__).parents[3] / "examples" / "join.yaml"
LISTS = Path(__file__).parents[2] / "corpus" / "price_lists"
SECTION = """\
prices:
  as_of: 2026-11-01
  on_demand: [{type: g5.xlarge, usd_per_hour: 0.83}]
  racks: [{nodes: RACK7, usd_per_hour: 1.44}]
  reserved_instances:
    - {type: m7i.large, count: 2, usd_per_hour: 0.06, since: 2026-11-01, until: 2027-11-01}
  storage: {ebs_usd_per_gb_month: 0.08}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(f"{GOOD}{SECTION}")
    return path


def run(config, *args):
    return CliRunner().invoke(prices.command, [*args, "--config", str(config)])


def test_an_import_says_what_it_took_and_writes_one_file(config):
    result = run(config, "import", str(LISTS / "us-west-2.csv"))
    assert "4 types of us-west-2, prices of 2026-11-20" in result.stdout
    assert (config.parent / "prices" / "us-west-2-2026-11-20.json").exists()


def test_a_dry_run_writes_nothing(config):
    result = run(config, "import", str(LISTS / "us-west-2.json"), "--dry-run", "--json")
    data = json.loads(result.stdout)
    assert (data["written"], data["region"], data["types"]) == (False, "us-west-2", 4)
    assert not (config.parent / "prices").exists()


def test_a_list_that_can_not_be_used_is_an_error(config):
    result = run(config, "import", str(LISTS / "cn-north-1.json"))
    assert isinstance(result.exception, PricesError)
    assert not (config.parent / "prices").exists()


def test_a_joins_prices_are_of_its_pools_alone():
    """List no head: the site has its own."""
    rows = json.loads(run(JOIN, "show", "--json").stdout)
    types = {offering.type for pool in load(JOIN).pools.values() for offering in pool.offerings}
    on_demand = {row["what"] for row in rows if row["what"].endswith("on demand")}
    assert on_demand == {f"{name} on demand" for name in types}


def test_each_price_is_shown_with_its_source_and_day(config):
    rows = {row["what"]: row for row in json.loads(run(config, "show", "--json").stdout)}
    shown = {what: (row["usd"], row["source"], row["as_of"]) for what, row in rows.items()}
    assert shown["g5.xlarge on demand"] == ("0.83", "contract", "2026-11-01")
    assert shown["m7i.large on demand"] == ("0.1008", "list", "2026-07-20")
    assert shown["reserved: 2 x m7i.large (1)"] == ("0.06", "reserved", "2026-11-01")
    assert shown["RACK7"] == ("1.44", "rack", "2026-11-01")
    assert shown["volumes (EBS)"] == ("0.08", "contract", "2026-11-01")
    assert shown["NAT gateway"] == (None, "unknown", None)
    assert rows["m7i.large on demand"]["age_days"] > 0
    assert "unknown" in run(config, "show").stdout
