"""Rates, tokens, secrets and prices of the local cloud."""

from __future__ import annotations

import json
import string

import pytest

from toolkit.local.aws.aws_errors import Refusal
from toolkit.local.aws.client_tokens import ClientTokens
from toolkit.local.aws.request_rates import Throttle
from toolkit.local.aws.secrets_manager import generate
from toolkit.local.aws.spot_prices import on_demand_price, spot_price
from toolkit.local.endpoint import call_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def allowed(throttle, action, times, *, filtered=False, resources=1):
    answers = [
        throttle.allows("r", action, filtered=filtered, resources=resources) for _ in range(times)
    ]
    return sum(answers)


@pytest.mark.parametrize(
    ("action", "filtered", "burst", "a_second"),
    [
        ("RunInstances", False, 5, 2),
        ("DescribeInstances", False, 50, 10),
        ("DescribeInstances", True, 100, 20),
        ("TerminateInstances", False, 100, 5),
        ("CreateTags", False, 100, 10),
        ("CreateLaunchTemplate", False, 50, 5),
    ],
)
def test_each_action_has_ec2s_burst_and_refill_rate(action, filtered, burst, a_second):
    clock = Clock()
    throttle = Throttle(clock, enabled=True)
    assert allowed(throttle, action, 300, filtered=filtered) == burst
    clock.now += 1
    assert allowed(throttle, action, 300, filtered=filtered) == a_second
    clock.now += 1e6
    assert allowed(throttle, action, 300, filtered=filtered) == burst


def test_the_instances_of_a_launch_have_a_rate_of_their_own():
    clock = Clock()
    throttle = Throttle(clock, enabled=True)
    assert allowed(throttle, "RunInstances", 3, resources=500) == 2


def test_a_clock_that_goes_back_refills_nothing():
    clock = Clock()
    clock.now = 100
    throttle = Throttle(clock, enabled=True)
    allowed(throttle, "RunInstances", 5)
    clock.now = 0
    assert allowed(throttle, "RunInstances", 1) == 0


def test_request_rates_can_be_disabled():
    assert allowed(Throttle(Clock(), enabled=False), "RunInstances", 1000) == 1000


def test_a_client_token_runs_once_and_refuses_other_parameters():
    tokens, calls = ClientTokens(), []

    def make():
        calls.append(1)
        return len(calls)

    params = {"ClientToken": "t", "MaxCount": 1}
    assert [tokens.run_once("Run", "r", params, make) for _ in range(3)] == [1, 1, 1]
    assert tokens.run_once("Run", "other", params, make) == 2, "tokens are a region's"
    with pytest.raises(Exception, match="inconsistent"):
        tokens.run_once("Run", "r", {**params, "MaxCount": 2}, make)
    assert tokens.run_once("Run", "r", {"MaxCount": 1}, make) == 3, "no token, no memory"
    with pytest.raises(Exception, match="terminated instance"):
        tokens.run_once("Run", "r", params, make, lambda first: first == 1)


SCOPE = "AKIA/20261121/eu-west-1/ec2/aws4_request"


def request(body="", **headers):
    environ = {
        "HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 Credential={SCOPE}, x",
        "CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8",
        **headers,
    }
    return call_of(environ, body.encode())


def test_service_region_action_and_resources_are_parsed_from_a_request():
    call = request("Action=RunInstances&MaxCount=7&MinCount=1")
    assert (call.service, call.region, call.action, call.resources) == (
        "ec2",
        "eu-west-1",
        "RunInstances",
        7,
    )
    assert request("Action=TerminateInstances&InstanceId.1=a&InstanceId.2=b").resources == 2
    assert request("Action=DescribeInstances&Filter.1.Name=x").filtered
    assert not request("Action=DescribeInstances&Version=2016").filtered


def test_the_action_of_a_json_request_is_in_a_header():
    call = request(
        "{}", CONTENT_TYPE="application/x-amz-json-1.1", HTTP_X_AMZ_TARGET="AmazonSSM.SendCommand"
    )
    assert call.action == "SendCommand"


@pytest.mark.parametrize(
    ("code", "status"),
    [("InsufficientInstanceCapacity", 500), ("RequestLimitExceeded", 503), ("InvalidAMIID", 400)],
)
def test_a_refusal_has_ec2s_http_status(code, status):
    assert Refusal(code, "<x>").status == status
    assert "&lt;x&gt;" in Refusal(code, "<x>").xml()
    assert json.loads(Refusal(code, "m").json()) == {"__type": code, "message": "m"}


def test_a_generated_secret_has_the_requested_length_and_characters():
    secrets = {generate({"PasswordLength": 64, "ExcludePunctuation": True}) for _ in range(5)}
    assert len(secrets) == 5
    for one in secrets:
        assert len(one) == 64
        assert set(one) <= set(string.ascii_letters + string.digits)
        assert set(one) & set(string.digits)
    request = {"SecretStringTemplate": '{"user": "x"}', "GenerateStringKey": "password"}
    assert json.loads(generate(request)).keys() == {"user", "password"}
    assert not set(generate({"ExcludeCharacters": "abc", "PasswordLength": 200})) & set("abc")


def test_a_spot_price_is_a_share_of_the_on_demand_price():
    for hour in range(0, 240, 7):
        for kind in ("g5.xlarge", "p5.48xlarge", "x2idn.32xlarge"):
            share = float(spot_price(kind, "us-east-1a", hour * 3600)) / float(
                on_demand_price(kind)
            )
            assert 0.27 < share < 0.49
    assert spot_price("g5.xlarge", "us-east-1a", 0) == spot_price("g5.xlarge", "us-east-1a", 3600)
