"""The head's file of prices: what is tried first, at the market's price of now."""

import json
import time

import pytest
from botocore.exceptions import EndpointConnectionError

from slurmplugins import prices
from slurmplugins.budgets import files as budget_files
from slurmplugins.config import burst, submit_line
from slurmplugins.errors import CloudError, ConfigError, SlurmUnreachable
from slurmplugins.head import price_file, submit_history
from slurmplugins.head.price_file import Remaining
from slurmplugins.head.sacct_windows import MOST_CHARACTERS
from slurmplugins.head.submit_history import NO_HISTORY, SubmitHistory
from slurmplugins.slurm.accounting import Answer
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.slurmdbd import FakeAccounting, Row
from tests.unit.render.render_samples import CPU_POOL, FACTS, GPU_POOL, PRICES, a_config
from toolkit.render.burst import burst_json

NOW = 1_790_000_000
NOTHING = Remaining()
SPOT = {("g5.xlarge", "us-east-1a"): "0.3111"}


def parts(**changed):
    document = json.loads(burst_json(a_config(**changed), FACTS, PRICES))
    return burst.parse(document), submit_line.parse(document)


def made(spot=SPOT, remaining=NOTHING, history=NO_HISTORY, **changed):
    return json.loads(price_file.document(*parts(**changed), spot, remaining, NOW, history=history))


def test_each_pool_has_the_offering_that_is_tried_first():
    offers = made()["partitions"]["any"]["offers"]
    assert offers == {
        "gpu": {
            "buy": "spot",
            "type": "g5.xlarge",
            "usd": 0.3111,
            "other": {"buy": "on demand", "type": "g5.xlarge", "usd": 1.006},
        },
        "cpu": {"buy": "on demand", "type": "c7i.4xlarge", "usd": 0.714},
    }


def test_what_the_policy_never_buys_is_no_other_offering():
    spot_only = {"spot": {"pools": ["gpu", "cpu"], "policy": "spot-only", "default": True}}
    assert "other" not in made(partitions=spot_only)["partitions"]["spot"]["offers"]["gpu"]
    later = {"spot": {"pools": ["gpu", "cpu"], "policy": "on-demand-after 30m", "default": True}}
    offer = made(partitions=later)["partitions"]["spot"]["offers"]["gpu"]
    assert (offer["buy"], offer["other"]["buy"]) == ("spot", "on demand")


def test_waits_and_interruptions_are_those_of_the_history():
    history = SubmitHistory(
        waits={"spot": ((NOW, 300), (NOW, 500))}, spot={"g5.xlarge": ((NOW // 86_400, 7200, 1),)}
    )
    partitions = made(history=history)["partitions"]
    assert partitions["spot"]["wait"] == {"count": 2, "seconds": 400}
    assert partitions["any"]["wait"] is None
    offers = partitions["any"]["offers"]
    assert offers["gpu"]["interruptions"] == {"count": 1, "hours": 2.0}
    assert "interruptions" not in offers["cpu"]


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


def write(tmp_path, *, connect=Ec2, accounting=None, config=None):
    """Make a pass; return whether it wrote, and the file."""
    burst_file, target = tmp_path / "burst.json", tmp_path / "prices.json"
    burst_file.write_text(burst_json(config or a_config(), FACTS, PRICES))
    clock = FakeClock(NOW)
    parts = prices.Parts(
        burst_file=burst_file,
        prices_file=target,
        state=tmp_path,
        connect=connect,
        accounting=accounting or FakeAccounting(),
        clock=clock,
        log=Log(lambda _: None, clock),
    )
    return prices.write(parts), target


def test_the_program_writes_a_file_that_everybody_may_read(tmp_path):
    made, target = write(tmp_path)
    assert made
    assert target.stat().st_mode & 0o777 == 0o644
    assert json.loads(target.read_text())["version"] == 1


def test_each_pass_adds_the_waits_of_the_time_since_the_last_one(tmp_path):
    ended = NOW - submit_history.LATE - 60
    row = Row(1, 1, ended - 90, ended, submit=ended - 690, state="COMPLETED", partition="spot")
    accounting = FakeAccounting({1: row})
    for count in (1, 1):  # a second pass at the same time adds nothing
        _, target = write(tmp_path, accounting=accounting)
        wait = json.loads(target.read_text())["partitions"]["spot"]["wait"]
        assert wait == {"count": count, "seconds": 600}
    assert len(accounting.calls) == 1


class Silent(FakeAccounting):
    """A slurmdbd that does not answer."""

    def window(self, since, until):
        raise SlurmUnreachable("away")


class Slow(FakeAccounting):
    """A slurmdbd with more attempts than sacct reads in time."""

    def window(self, since, until):
        return None


class VastAnswer(Answer):
    """More attempts than the program's memory holds as rows."""

    def rows(self):
        raise MemoryError


class Vast(FakeAccounting):
    """A slurmdbd that answers with too many attempts."""

    def window(self, since, until):
        return VastAnswer(" " * (MOST_CHARACTERS + 1), (), "token")


@pytest.mark.parametrize(
    ("accounting", "reached"), [(Silent(), 7), (Slow(), NOW - 300), (Vast(), NOW - 300)]
)
def test_prices_are_written_without_slurmdbd_too(tmp_path, accounting, reached):
    SubmitHistory(7, {"spot": ((NOW, 60),)}).save(tmp_path)
    made, target = write(tmp_path, accounting=accounting)
    assert made
    assert json.loads(target.read_text())["partitions"]["spot"]["wait"]["seconds"] == 60
    assert SubmitHistory.load(tmp_path).until == reached


def test_prices_that_can_not_be_had_leave_the_old_file(tmp_path):
    target = tmp_path / "prices.json"
    target.write_text("old")
    away = Ec2(EndpointConnectionError(endpoint_url="https://ec2"))
    with pytest.raises(CloudError):
        write(tmp_path, connect=lambda: away)
    assert target.read_text() == "old"


def test_where_the_line_is_off_the_file_is_removed(tmp_path):
    off = a_config(slurm={"version": "24.11", "submit_line": False})
    (tmp_path / "prices.json").write_text("old")
    made, target = write(tmp_path, config=off)
    assert not made
    assert not target.exists()


@pytest.mark.parametrize("part", [7, {}, {"default": None, "partitions": [], "nodes": {}}])
def test_a_damaged_part_is_refused(part):
    with pytest.raises(ConfigError, match="submit_line"):
        submit_line.parse({"submit_line": part})


def test_a_part_that_does_not_say_what_is_private_hides_all_that_can_be():
    document = json.loads(burst_json(a_config(), FACTS, PRICES))
    del document["submit_line"]["private_data"]
    part = submit_line.parse(document)
    assert price_file.visible(WHOLE, part.private_data).accounts == {}
    content = price_file.document(burst.parse(document), part, SPOT, WHOLE, NOW)
    assert json.loads(content)["default_accounts"] == {}
