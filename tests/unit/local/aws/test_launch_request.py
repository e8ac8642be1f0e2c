"""A launch call and its template become one launch."""

from __future__ import annotations

import base64

import pytest

from toolkit.local.aws.aws_errors import code_of
from toolkit.local.aws.launch_request import (
    USER_DATA_LIMIT,
    launch_of,
    merge,
    parse_bool,
    tags_by_type,
    user_data_bytes,
)

LIMIT = 50
"""User tags that EC2 takes on one resource. Source: the EC2 guide, "Tag restrictions"."""

BASE = {"ImageId": "ami-1", "InstanceType": "g5.xlarge"}


def instance_tags(**tags):
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return {"ResourceType": "instance", "Tags": listed}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_the_call_overrides_the_launch_template_unless_its_value_is_none():
    template = {**BASE, "KeyName": "k", "UserData": encoded(b"t")}
    launch = launch_of(merge({"InstanceType": "g5.2xlarge", "KeyName": None}, template))
    assert (launch.instance_type, launch.key_name) == ("g5.2xlarge", "k")
    assert user_data_bytes(launch.user_data) == b"t"


def test_metadata_options_and_tags_are_merged_key_by_key():
    template = {
        **BASE,
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "TagSpecifications": [instance_tags(a="template", b="template")],
    }
    call = {
        "MetadataOptions": {"HttpPutResponseHopLimit": 2},
        "TagSpecifications": [instance_tags(b="call", c="call")],
    }
    launch = launch_of(merge(call, template))
    assert launch.metadata == {"HttpTokens": "required", "HttpPutResponseHopLimit": 2}
    assert launch.instance_tags == {"a": "template", "b": "call", "c": "call"}


def test_the_primary_interface_supplies_subnet_and_addresses():
    nics = [
        {"DeviceIndex": "1", "SubnetId": "subnet-2"},
        {
            "DeviceIndex": "0",
            "SubnetId": "subnet-1",
            "PrivateIpAddress": "10.0.0.9",
            "AssociatePublicIpAddress": "true",
            "GroupSet": ["sg-1"],
        },
    ]
    launch = launch_of({**BASE, "NetworkInterfaces": nics})
    assert (launch.subnet_id, launch.private_ip) == ("subnet-1", "10.0.0.9")
    assert launch.public_ip is True
    assert launch.nics[0]["Groups"] == ["sg-1"]
    assert launch.nics[0]["DeleteOnTermination"] is True
    moved_launch = launch.with_place(subnet_id="subnet-3", zone="us-east-1b")
    assert moved_launch.nics[0]["SubnetId"] == moved_launch.subnet_id == "subnet-3"
    assert moved_launch.nics[1]["SubnetId"] == "subnet-2"


@pytest.mark.parametrize(
    "clash", ["SubnetId", "SecurityGroupIds", "SecurityGroups", "PrivateIpAddress"]
)
def test_interfaces_and_instance_level_networking_exclude_each_other(clash):
    nics = [{"DeviceIndex": 0}]
    with pytest.raises(Exception, match="may not be specified") as caught:
        launch_of({**BASE, "NetworkInterfaces": nics, clash: "x"})
    assert caught.value.code == "InvalidParameterCombination"


def test_user_data_is_base64_of_at_most_16_kib():
    assert launch_of({**BASE, "UserData": encoded(b"x" * USER_DATA_LIMIT)})
    with pytest.raises(Exception, match="16384"):
        launch_of({**BASE, "UserData": encoded(b"x" * (USER_DATA_LIMIT + 1))})
    with pytest.raises(Exception, match="BASE64"):
        launch_of({**BASE, "UserData": "not base64!"})


def test_a_launch_requires_an_image():
    with pytest.raises(Exception, match="ImageId"):
        launch_of({"InstanceType": "g5.xlarge"})


def test_the_market_options_supply_lifecycle_and_maximum_price():
    options = {"MarketType": "spot", "SpotOptions": {"MaxPrice": 0.5}}
    launch = launch_of({**BASE, "InstanceMarketOptions": options})
    assert (launch.market, launch.max_price) == ("spot", "0.5")
    assert launch_of(BASE).market == "on-demand"


def test_an_instance_profile_may_be_a_bare_name():
    assert launch_of({**BASE, "IamInstanceProfile": "p"}).profile == {"Name": "p"}
    assert launch_of({**BASE, "IamInstanceProfile": {"Arn": "a"}}).profile == {"Arn": "a"}


@pytest.mark.parametrize(
    "tags",
    [{"k" * 129: "v"}, {"k": "v" * 257}, {"": "v"}, {f"k{n}": "v" for n in range(51)}],
)
def test_invalid_tags_are_refused(tags):
    with pytest.raises(Exception, match="ag"):
        tags_by_type([instance_tags(**tags)])


@pytest.mark.parametrize(
    ("value", "meaning"),
    [(True, True), ("true", True), ("True", True), ("false", False), (None, None), (False, False)],
)
def test_booleans_are_parsed_in_every_spelling(value, meaning):
    assert parse_bool(value) is meaning


def test_one_tag_above_ec2s_limit_is_refused_and_aws_own_are_not_counted():
    most = {f"key-{number}": "x" for number in range(LIMIT)}
    own = {"aws:cloudformation:stack-name": "demo"}
    assert tags_by_type([instance_tags(**most, **own)]) == {"instance": most | own}
    with pytest.raises(Exception, match="tags specified") as caught:
        tags_by_type([instance_tags(**most, one_more="x")])
    assert code_of(caught.value)[0] == "TagLimitExceeded"
