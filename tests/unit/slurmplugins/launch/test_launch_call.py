"""Launches that EC2 refuses, as the fake cloud reads them.

Further tests read EC2's answers on instances.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.cloud import ec2_messages
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.cloud.rate_limit import Rate, TokenQueue
from slurmplugins.errors import CloudError, InvalidRequest
from slurmplugins.model import hostlist
from slurmplugins.model.instance import InstanceHealth, Lifecycle, Offering, ScheduledEvent
from slurmplugins.model.launch import LaunchRequest
from tests.fakes import launch_call
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES = hostlist.expand("gpu-[001-003]")
SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")
DEMAND = replace(SPOT, lifecycle=Lifecycle.ON_DEMAND)
RESERVED = replace(DEMAND, reservation="cr-0a")
BLOCK = replace(DEMAND, reservation="cr-0b", block=True)


def run(offering: Offering, changes: Mapping[str, Any]) -> launch_call.Call:
    request = LaunchRequest("a1", "demo", "gpu", "spot", "demo-gpu", "subnet-a", offering, NODES)
    return launch_call.run_instances(
        patched(ec2_messages.run_instances(request), changes), {"cr-0b"}
    )


def fleet(offering: Offering, changes: Mapping[str, Any]) -> launch_call.Call:
    others = (replace(offering, type="g5.2xlarge"),)
    request = LaunchRequest(
        "a1", "demo", "gpu", "spot", "demo-gpu", "subnet-a", offering, NODES, others
    )
    return launch_call.create_fleet(patched(ec2_messages.create_fleet(request), changes))


def patched(sent: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Set these values at their paths; None removes the value."""
    for path, value in changes.items():
        *parents, last = path.split(".")
        into: Any = sent
        for key in parents:
            into = into[int(key)] if key.isdigit() else into.setdefault(key, {})
        if value is None:
            del into[last]
        else:
            into[int(last) if last.isdigit() else last] = value
    return sent


MARKET = "InstanceMarketOptions"
TARGET = "CapacityReservationSpecification"
OVERRIDES = "LaunchTemplateConfigs.0.Overrides"


@pytest.mark.parametrize(
    ("offering", "changes"),
    [
        (SPOT, {f"{MARKET}.SpotOptions.InstanceInterruptionBehavior": "stop"}),
        (SPOT, {f"{MARKET}.SpotOptions.InstanceInterruptionBehavior": "hibernate"}),
        (SPOT, {f"{MARKET}.SpotOptions.SpotInstanceType": "persistent"}),
        (SPOT, {f"{MARKET}.SpotOptions.SpotInstanceType": "once"}),
        (SPOT, {f"{MARKET}.MarketType": "cheap"}),
        (SPOT, {f"{MARKET}.MarketType": "capacity-block"}),
        (SPOT, {TARGET: {"CapacityReservationTarget": {"CapacityReservationId": "cr-0a"}}}),
        (SPOT, {MARKET: None}),  # The tags for a spot request stay, without such a request.
        (RESERVED, {MARKET: {"MarketType": "capacity-block"}}),
        (BLOCK, {MARKET: None}),
        (BLOCK, {TARGET: None}),
        (DEMAND, {"MinCount": 0}),
        (DEMAND, {"MinCount": 4}),
        (DEMAND, {"MaxCount": 1001}),
        (DEMAND, {"ClientToken": "x" * 65}),
        (DEMAND, {"TagSpecifications.0.Tags.0.Value": "x" * 257}),
        (DEMAND, {"TagSpecifications.0.Tags.0.Key": "aws:x"}),
        (DEMAND, {"TagSpecifications.0.Tags.0.Key": "toolkit:pool"}),
        (DEMAND, {"TagSpecifications.1.ResourceType": "instance"}),
        (DEMAND, {"Overrides": []}),
    ],
)
def test_ec2_refuses_this_launch_and_takes_it_without_that(
    offering: Offering, changes: dict[str, Any]
):
    run(offering, {})
    with pytest.raises(InvalidRequest):
        run(offering, changes)


@pytest.mark.parametrize(
    ("offering", "changes"),
    [
        (SPOT, {"SpotOptions.SingleAvailabilityZone": False}),
        (DEMAND, {"OnDemandOptions.SingleAvailabilityZone": None}),
        (SPOT, {"SpotOptions.AllocationStrategy": "prioritized"}),
        (DEMAND, {"OnDemandOptions.AllocationStrategy": "price-capacity-optimized"}),
        (SPOT, {"SpotOptions.InstanceInterruptionBehavior": "stop"}),
        (DEMAND, {"OnDemandOptions.InstanceInterruptionBehavior": "terminate"}),
        (SPOT, {"SpotOptions.MinTargetCapacity": 4}),
        (SPOT, {"TargetCapacitySpecification.TotalTargetCapacity": 0}),
        (SPOT, {"TargetCapacitySpecification.DefaultTargetCapacityType": "cheap"}),
        (SPOT, {f"{OVERRIDES}.1.InstanceType": "g5.xlarge"}),
        (SPOT, {"TagSpecifications.0.ResourceType": "volume"}),
        (SPOT, {TARGET: {"CapacityReservationTarget": {"CapacityReservationId": "cr-0a"}}}),
        (SPOT, {"Type": "maintain"}),
    ],
)
def test_ec2_refuses_this_fleet_and_takes_it_without_that(
    offering: Offering, changes: dict[str, Any]
):
    fleet(offering, {})
    with pytest.raises(InvalidRequest):
        fleet(offering, changes)


def test_a_fleet_on_demand_is_filled_in_the_order_of_its_priorities():
    changes = {f"{OVERRIDES}.0.Priority": 7.0}
    assert [item.type for item in fleet(DEMAND, changes).choices] == ["g5.2xlarge", "g5.xlarge"]


@pytest.mark.parametrize("subnet", ["subnet-a", ""])
def test_a_fleet_names_no_subnet_where_its_launch_template_does(subnet: str):
    others = (replace(SPOT, type="g5.2xlarge"),)
    request = LaunchRequest("a1", "demo", "gpu", "spot", "demo-gpu", subnet, SPOT, NODES, others)
    (config,) = ec2_messages.create_fleet(request)["LaunchTemplateConfigs"]
    place = {"SubnetId": subnet} if subnet else {}
    types = ("g5.xlarge", "g5.2xlarge")
    assert config["Overrides"] == [{"InstanceType": name, **place} for name in types]


@pytest.mark.parametrize(
    "text", ["gpu-[001-003]", "gpu-1", "gpu-[1,3-4],cpu-[08-11],x", "a[1-2]b[3,5]"]
)
def test_the_fake_reads_a_hostlist_as_slurm_does(text: str):
    expanded = {
        "gpu-[001-003]": ["gpu-001", "gpu-002", "gpu-003"],
        "gpu-1": ["gpu-1"],
        "gpu-[1,3-4],cpu-[08-11],x": [
            "gpu-1", "gpu-3", "gpu-4", "cpu-08", "cpu-09", "cpu-10", "cpu-11", "x",
        ],
        "a[1-2]b[3,5]": ["a1b3", "a1b5", "a2b3", "a2b5"],
    }  # fmt: skip
    assert launch_call.hostlist(text) == expanded[text]


def status(description: str) -> dict[str, Any]:
    event = {
        "Code": "instance-retirement",
        "Description": description,
        "NotBefore": datetime(2026, 11, 23, tzinfo=UTC),
    }
    return {"InstanceId": "i-1", "Events": [event]}


@pytest.mark.parametrize("mark", ["[Completed]", "[Canceled]"])
def test_a_completed_scheduled_event_is_no_health_problem(mark: str):
    """Read a scheduled event that is completed or cancelled.

    EC2 goes on listing it for a week.
    """
    assert (
        ec2_messages.health([status(f"{mark} The instance is running on degraded hardware")], [])
        == ()
    )
    found = ec2_messages.health([status("The instance is running on degraded hardware")], [])
    at = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
    assert found == (InstanceHealth("i-1", None, (ScheduledEvent("instance-retirement", at),)),)


class TwiceTheSame:
    """An EC2 client whose fleet names one instance twice."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def create_fleet(self, **_: object) -> dict[str, Any]:
        return {"Instances": [{"InstanceIds": ["i-1", "i-2"]}, {"InstanceIds": ["i-1"]}]}

    def create_tags(self, **_: object) -> dict[str, Any]:
        return {}

    def describe_instances(self, **_: object) -> dict[str, Any]:
        return {"Reservations": []}

    def terminate_instances(self, *, InstanceIds: list[str]) -> dict[str, Any]:  # noqa: N803 - boto3's
        self.ended += InstanceIds
        return {"TerminatingInstances": []}


def test_a_fleet_that_names_an_instance_twice_is_terminated_and_refused():
    """Answer CreateFleet with one instance id twice.

    That instance would be behind two nodes.
    """
    client = TwiceTheSame()
    others = (replace(SPOT, type="g5.2xlarge"),)
    request = LaunchRequest("a", "demo", "gpu", "spot", "demo-gpu", "s", SPOT, NODES, others)
    with pytest.raises(CloudError) as caught:
        Ec2("demo", lambda: client, FakeClock()).launch(request, lambda: None)
    assert caught.value.code == "OddAnswer"
    assert set(client.ended) == {"i-1", "i-2"}


def test_a_call_larger_than_its_bucket_waits_for_a_full_one_and_no_longer():
    """Queue two calls for 4,000 instances at a bucket of 1,000.

    EC2 takes a call of any size once its bucket is full.
    """
    bucket = TokenQueue(Rate(1000, 2), FakeClock())
    assert bucket.wait(bucket.join_queue(4000)) == 0
    assert bucket.wait(bucket.join_queue(4000)) >= 1000 / 2 - 1
