"""The head's file of prices: what is tried first, at the market's price of now."""

import json
import time

import pytest
from botocore.exceptions import EndpointConnectionError

from slurmplugins import prices
from slurmplugins.budgets import files as budget_files
from slurmplugins.config import burst, submit_line
from slurmplugins.errors import CloudError, ConfigError
from slurmplugins.head import price_file
from slurmplugins.head.price_file import Remaining
from tests.fakes.clock import FakeClock
from tests.unit.render.render_samples import CPU_POOL, FACTS, GPU_POOL, PRICES, a_config
from toolkit.render.burst import burst_json

NOW = 1_790_000_000
NOTHING = Remaining()
SPOT = {("g5.xlarge", "us-east-1a"): "0.3111"}


def parts(**changed):
    document = json.loads(burst_json(a_config(**changed), FACTS, PRICES))
    return burst.parse(document), submit_line.parse(document)


def made(spot=SPOT, remaining=NOTHING, **changed):
    return json.loads(price_file.document(*parts(**changed), spot, remaining, NOW))


def test_each_pool_has_the_offering_that_is_tried_first():
    offers = made()["partitions"]["any"]["offers"]
    assert offers == {
        "gpu": {"buy": "spot", "type": "g5.xlarge", "usd": 0.3111},
        "cpu": {"buy": "on demand", "type": "c7i.4xlarge", "usd": 0.714},
    }


def test_a_policy_decides_what_is_tried_first():
    on_demand = {"spot": {"pools": ["gpu", "cpu"], "policy": "on-demand-only", "default": True}}
    assert made(partitions=on_demand)["partitions"]["spot"]["offers"]["gpu"]["usd"] == 1.006


def test_without_a_price_of_now_the_last_deploys_holds():
    assert made(spot={})["partitions"]["spot"]["offers"]["gpu"]["usd"] == 0.4024
    assert made(spot={("g5.xlarge", "us-east-1a"): "NaN"}) == made(spot={})


def test_an_unknown_price_is_no_offer():
    unknown = {**CPU_POOL, "offerings": [{"type": "x9.large", "capacity": "on-demand"}]}
    assert made(pools={"gpu": GPU_POOL, "cpu": unknown})["partitions"]["any"]["offers"].keys() == {
        "gpu"
    }


def test_partitions_have_the_limits_and_defaults_of_slurm_conf():
    document = made()
    assert document["default"] == "spot"
    assert document["partitions"]["spot"]["max_minutes"] == 1440
    assert document["partitions"]["any"]["max_minutes"] is None
    assert document["nodes"]["gpu"]["gpu"] == "a10g"
    assert document["at"] == NOW


def test_the_newest_change_is_the_price_of_now():
    points = [("g5.xlarge", "us-east-1a", 2, "0.2"), ("g5.xlarge", "us-east-1a", 1, "0.1")]
    assert price_file.current_prices(points) == {("g5.xlarge", "us-east-1a"): "0.2"}


@pytest.mark.parametrize(
    ("text", "remaining"),
    [
        (b'{"accounts": {"vision": "12.50", "speech": 3}}', {"vision": 12.5, "speech": 3.0}),
        (b'{"accounts": {"vision": -1}}', {"vision": -1.0}),
        (b'{"accounts": {"vision": "NaN", "a\\"b": 1, "x": true}}', {}),
        (b"[]", {}),
        (b"nothing", {}),
    ],
)
def test_what_is_left_of_budgets_is_taken_over(tmp_path, text, remaining):
    (tmp_path / budget_files.REMAINING).write_bytes(text)
    assert price_file.read_remaining(tmp_path, time.time()) == Remaining(remaining)
    assert price_file.read_remaining(tmp_path / "none", time.time()) == Remaining()


def test_a_refusal_that_the_script_could_not_read_is_left_out(tmp_path):
    text = b'{"refused": {"a": "until then", "b": "a \\"grant\\"", "c": 3}, "projects": {"a": "x"}}'
    (tmp_path / budget_files.REMAINING).write_bytes(text)
    read = price_file.read_remaining(tmp_path, time.time())
    assert read == Remaining(refused={"a": "until then"})


def test_default_accounts_are_told_only_beside_budgets():
    assert "default_accounts" not in made()
    assert made(remaining=Remaining({"vision": 2.0}))["default_accounts"] == {"ada": "vision"}


WHOLE = Remaining(
    accounts={"vision": 12.5},
    projects={"imagenet": 3.25},
    refused={"imagenet": "erc: account vision and project imagenet may cost 5.00 USD until then"},
    ended_accounts={"speech": "dfg: the grant of account speech ended"},
    ended_projects={"coco": "dfg: the grant of account speech and project coco ended"},
    account_projects={"speech": "coco"},
)


def private(*kinds):
    slurm = {"version": "24.11", "private_data": list(kinds)}
    return made(remaining=WHOLE, slurm=slurm)


def test_where_usage_is_private_no_amount_of_a_budget_is_in_the_file():
    document = private("usage")
    assert (document["remaining"], document["remaining_of_projects"]) == ({}, {})
    words = "project imagenet: its budget takes no job now"
    assert document["refused_projects"] == {"imagenet": words}
    assert document["ended_accounts"] == WHOLE.ended_accounts
    text = json.dumps(document)
    assert not [amount for amount in ("12.5", "3.25", "5.00") if amount in text]


def test_where_users_are_private_nobodys_account_is_in_the_file():
    assert private("users")["default_accounts"] == {}
    assert private("users")["remaining"] == {"vision": 12.5}
    assert private("jobs")["default_accounts"] == {"ada": "vision"}


def test_where_accounts_are_private_no_account_is_named_in_the_file():
    document = private("accounts")
    assert not [name for name in ("vision", "speech") if name in json.dumps(document)]
    assert document["remaining_of_projects"] == {"imagenet": 3.25}
    words = "project coco: its grant ended, and pays no job"
    assert document["ended_projects"] == {"coco": words}


class Ec2:
    """EC2 with one price of now, or none."""

    def __init__(self, error=None) -> None:
        self._error = error

    def describe_spot_price_history(self, **request):
        if self._error:
            raise self._error
        assert request["InstanceTypes"] == ["g5.xlarge"]
        return {"SpotPriceHistory": []}


def test_the_program_writes_a_file_that_everybody_may_read(tmp_path):
    burst_file, target = tmp_path / "burst.json", tmp_path / "prices.json"
    burst_file.write_text(burst_json(a_config(), FACTS, PRICES))
    assert prices.write(burst_file, target, tmp_path, Ec2, FakeClock())
    assert target.stat().st_mode & 0o777 == 0o644
    assert json.loads(target.read_text())["version"] == 1


def test_prices_that_can_not_be_had_leave_the_old_file(tmp_path):
    burst_file, target = tmp_path / "burst.json", tmp_path / "prices.json"
    burst_file.write_text(burst_json(a_config(), FACTS, PRICES))
    target.write_text("old")
    away = Ec2(EndpointConnectionError(endpoint_url="https://ec2"))
    with pytest.raises(CloudError):
        prices.write(burst_file, target, tmp_path, lambda: away, FakeClock())
    assert target.read_text() == "old"


def test_where_the_line_is_off_the_file_is_removed(tmp_path):
    burst_file, target = tmp_path / "burst.json", tmp_path / "prices.json"
    off = a_config(slurm={"version": "24.11", "submit_line": False})
    burst_file.write_text(burst_json(off, FACTS, PRICES))
    target.write_text("old")
    assert not prices.write(burst_file, target, tmp_path, Ec2, FakeClock())
    assert not target.exists()


@pytest.mark.parametrize("part", [7, {}, {"default": None, "partitions": [], "nodes": {}}])
def test_a_damaged_part_is_refused(part):
    with pytest.raises(ConfigError, match="submit_line"):
        submit_line.parse({"submit_line": part})
