"""Meaning of EC2's answers, field by field, and of absent fields."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from slurmplugins import errors
from slurmplugins.cloud import ec2_messages
from slurmplugins.model import hostlist
from slurmplugins.model.instance import (
    Instance,
    InstanceHealth,
    InstanceState,
    Lifecycle,
    Offering,
    ScheduledEvent,
)
from slurmplugins.model.launch import LaunchRequest

NODES = hostlist.expand("gpu-[001-003]")
SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")
OTHER = replace(SPOT, type="g5.2xlarge", price="0.5")
FLEET = LaunchRequest("a1", "demo", "gpu", "spot", "demo-gpu", "subnet-a", SPOT, NODES, (OTHER,))
AT = datetime(2026, 11, 23, 4, 5, 6, tzinfo=UTC)
TAGS = {
    "toolkit:cluster": "demo",
    "toolkit:role": "compute",
    "toolkit:pool": "gpu",
    "toolkit:partition": "spot",
    "toolkit:nodes": "gpu-[001-003]",
    "toolkit:attempt": "a1",
    "toolkit:price": "0.4024",
}
DESCRIBED: dict[str, Any] = {
    "InstanceId": "i-1",
    "State": {"Name": "running"},
    "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()],
    "AmiLaunchIndex": 1,
    "InstanceType": "g5.xlarge",
    "InstanceLifecycle": "spot",
    "Placement": {"AvailabilityZone": "us-east-1a"},
    "PrivateIpAddress": "10.0.0.1",
    "LaunchTime": AT,
    "StateReason": {"Code": "Client.UserInitiatedShutdown"},
    "StateTransitionReason": "User initiated (2026-11-23 04:06:00 GMT)",
}
READ = Instance(
    id="i-1",
    state=InstanceState.RUNNING,
    role="compute",
    node=NODES[1],
    pool="gpu",
    partition="spot",
    attempt="a1",
    type="g5.xlarge",
    zone="us-east-1a",
    lifecycle=Lifecycle.SPOT,
    address="10.0.0.1",
    price="0.4024",
    launched_at=AT.timestamp(),
)
ENDED_AT = datetime(2026, 11, 23, 4, 6, tzinfo=UTC).timestamp()


def test_an_instance_is_read_from_every_field_that_matters():
    assert ec2_messages.instance(DESCRIBED) == READ


def test_the_cause_and_time_of_a_termination_are_read_once_the_instance_is_terminated():
    over = ec2_messages.instance({**DESCRIBED, "State": {"Name": "terminated"}})
    code = "Client.UserInitiatedShutdown"
    assert over == replace(READ, state=InstanceState.TERMINATED, ended_at=ENDED_AT, end_code=code)


@pytest.mark.parametrize("name", ["stopping", "stopped"])
def test_the_time_of_a_stop_is_read_once_the_instance_stops(name: str):
    read = ec2_messages.instance({**DESCRIBED, "State": {"Name": name}})
    assert (read.stopped_at, read.ended_at) == (ENDED_AT, None)


@pytest.mark.parametrize("reason", ["", None, "Server.SpotInstanceTermination", "User (then)"])
def test_a_termination_without_a_time_has_none(reason: str | None):
    described = {**DESCRIBED, "State": {"Name": "terminated"}, "StateTransitionReason": reason}
    assert ec2_messages.instance(described).ended_at is None


def test_a_time_in_utc_is_read_as_one_in_gmt():
    text = "Server.SpotInstanceTermination: (2026-11-23 04:06:00 UTC)"
    described = {**DESCRIBED, "State": {"Name": "terminated"}, "StateTransitionReason": text}
    assert ec2_messages.instance(described).ended_at == ENDED_AT


def test_the_time_of_a_termination_is_in_utc_in_any_time_zone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        over = ec2_messages.instance({**DESCRIBED, "State": {"Name": "terminated"}})
    finally:
        monkeypatch.undo()
        time.tzset()
    assert over.ended_at == ENDED_AT


@pytest.mark.parametrize(
    ("state", "unclear"),
    [
        ({}, ""),
        ({"State": {}}, ""),
        ({"State": {"Name": ""}}, ""),
        ({"State": {"Name": "hibernating"}}, "hibernating"),
    ],
)
def test_an_instance_whose_state_is_none_that_is_known_is_unclear(
    state: dict[str, Any], unclear: str
):
    found = ec2_messages.instance({"InstanceId": "i-1", **state})
    assert (found.state, found.unclear) == (InstanceState.UNCLEAR, unclear)


def test_of_an_instance_listed_twice_the_later_entry_counts_unless_it_was_terminated():
    def listed(id_: str, state: str) -> dict[str, Any]:
        return {"InstanceId": id_, "State": {"Name": state}}

    found = ec2_messages.instances(
        [
            listed("i-1", "pending"),
            listed("i-2", "terminated"),
            {"State": {"Name": "running"}},
            {"InstanceId": "", "State": {"Name": "running"}},
            listed("i-1", "running"),
            listed("i-2", "running"),
        ]
    )
    assert [(item.id, item.state.value) for item in found] == [
        ("i-1", "running"),
        ("i-2", "terminated"),
    ]


def test_an_instance_with_few_fields_yet_is_read():
    bare = {"InstanceId": "i-1", "State": {"Name": "shutting-down"}}
    assert ec2_messages.instance(bare) == Instance(
        id="i-1",
        state=InstanceState.SHUTTING_DOWN,
        role="",
        node=None,
        pool="",
        partition="",
        attempt="",
        type="",
        zone="",
        lifecycle=Lifecycle.ON_DEMAND,
        address="",
        price="",
        launched_at=0.0,
    )


def test_a_missing_launch_index_is_the_first():
    described = {key: value for key, value in DESCRIBED.items() if key != "AmiLaunchIndex"}
    assert ec2_messages.instance(described).node == NODES[0]


def test_an_instance_of_a_fleet_that_is_not_described_yet_is_what_was_asked_for():
    assert ec2_messages.undescribed_instance(FLEET, "i-9", NODES[2]) == replace(
        READ,
        id="i-9",
        state=InstanceState.PENDING,
        node=NODES[2],
        type="",
        address="",
        price="",
        launched_at=0.0,
    )


def test_each_of_a_fleets_errors_is_about_the_type_that_it_names():
    said = [
        {
            "LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": "g5.2xlarge"}},
            "ErrorCode": "InsufficientInstanceCapacity",
            "ErrorMessage": "none left",
        },
        {"ErrorCode": "UnfulfillableCapacity"},
        {"LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": "x1.32xlarge"}}},
        {"LaunchTemplateAndOverrides": {}, "ErrorMessage": "odd"},
    ]
    found = ec2_messages.refusals(FLEET, said)
    assert [item.offering for item in found] == [OTHER, SPOT, SPOT, SPOT]
    assert [(item.error.code, item.error.message) for item in found] == [
        ("InsufficientInstanceCapacity", "none left"),
        ("UnfulfillableCapacity", ""),
        ("", ""),
        ("", "odd"),
    ]
    assert isinstance(found[0].error, errors.NoCapacity)


def impaired(*since: datetime | None, check: str = "InstanceStatus") -> dict[str, Any]:
    details = [{"ImpairedSince": moment} if moment else {} for moment in since]
    return {"InstanceId": "i-1", check: {"Status": "impaired", "Details": details}}


LATER = AT.replace(minute=30)


@pytest.mark.parametrize(
    ("status", "since"),
    [
        (impaired(AT), AT.timestamp()),
        (impaired(AT, check="SystemStatus"), AT.timestamp()),
        (impaired(LATER, AT), AT.timestamp()),
        (impaired(None, LATER), LATER.timestamp()),
        (impaired(None), 0.0),
        (impaired(), 0.0),
        ({"InstanceId": "i-1", "SystemStatus": {"Status": "impaired"}}, 0.0),
        ({**impaired(LATER), **impaired(AT, check="SystemStatus")}, AT.timestamp()),
    ],
)
def test_an_instance_is_impaired_since_its_first_failed_check(status: dict[str, Any], since: float):
    assert ec2_messages.health([status], []) == (InstanceHealth("i-1", impaired_since=since),)


def test_an_instance_whose_checks_pass_has_no_health_problem():
    passed = {"Status": "ok", "Details": [{"ImpairedSince": AT}]}
    fine = {"InstanceId": "i-1", "InstanceStatus": passed, "SystemStatus": passed}
    assert ec2_messages.health([fine], []) == ()


def test_an_instance_with_several_health_problems_has_all_of_them():
    event = {"Code": "system-reboot", "NotBefore": AT}
    status = {**impaired(AT), "Events": [event, {"Code": "instance-stop"}]}
    marked = {"InstanceId": "i-1", "Status": {"Code": "marked-for-termination"}}
    ours = [
        {"InstanceId": "i-2", "Status": {"Code": "fulfilled"}},
        {"Status": {"Code": "marked-for-termination"}},
        {"InstanceId": "i-3"},
        marked,
        {**marked, "InstanceId": "i-4"},
    ]
    events = (
        ScheduledEvent("system-reboot", AT.timestamp()),
        ScheduledEvent("instance-stop", 0.0),
    )
    assert ec2_messages.health([status, status], ours) == (
        InstanceHealth("i-1", AT.timestamp(), events, notice=True),
        InstanceHealth("i-4", notice=True),
    )
