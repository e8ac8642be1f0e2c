"""The refusals of EC2, which the local cloud must give as well.

Otherwise a request would pass here that AWS never accepts.
"""

from __future__ import annotations

from collections import Counter

import pytest
from botocore.exceptions import ClientError

ONE_ZONE = {"SingleAvailabilityZone": True}


@pytest.fixture
def refusal_code():
    """A function that returns the error code of a refused call.

    The test fails if the call succeeds.
    """

    def call(function, *args, **options):
        with pytest.raises(ClientError) as caught:
            function(*args, **options)
        return caught.value.response["Error"]["Code"]

    return call


def error_counts(answer):
    return Counter(one["ErrorCode"] for one in answer["Errors"])


def instance_count(answer):
    return sum(len(one["InstanceIds"]) for one in answer["Instances"])


def spot_market(**options):
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}


@pytest.mark.parametrize("behavior", ["stop", "hibernate"])
@pytest.mark.parametrize("kind", [{}, {"SpotInstanceType": "one-time"}])
def test_a_one_time_spot_instance_must_terminate_when_interrupted(
    launch, refusal_code, local, behavior, kind
):
    parameters = spot_market(InstanceInterruptionBehavior=behavior, **kind)
    assert refusal_code(launch, **parameters) == "InvalidParameterCombination"
    assert local.instances() == []
    assert launch(**spot_market(InstanceInterruptionBehavior="terminate", **kind))


def test_a_spot_launch_template_must_terminate_when_interrupted(ec2, local, launch, refusal_code):
    ec2.create_launch_template(
        LaunchTemplateName="keeps",
        LaunchTemplateData={
            "ImageId": local.image, **spot_market(InstanceInterruptionBehavior="stop")
        },
    )  # fmt: skip
    template_reference = {"LaunchTemplate": {"LaunchTemplateName": "keeps"}}
    assert refusal_code(launch, ImageId=None, **template_reference) == "InvalidParameterCombination"


def test_an_instant_spot_fleet_must_terminate_when_interrupted(fleet, refusal_code, local):
    options = {"InstanceInterruptionBehavior": "stop"}
    assert refusal_code(fleet, 1, options=options) == "InvalidParameterCombination"
    assert local.instances() == []


@pytest.mark.parametrize("market_type", ["spot", "on-demand"])
def test_a_minimum_fleet_capacity_requires_a_single_zone_or_a_single_type(
    fleet, refusal_code, local, market_type
):
    for options in ({}, {"SingleAvailabilityZone": False, "SingleInstanceType": False}):
        fleet_options = {"MinTargetCapacity": 1, **options}
        code = refusal_code(fleet, 1, market=market_type, options=fleet_options)
        assert code == "InvalidParameterCombination"
    assert local.instances() == []
    for option in ("SingleAvailabilityZone", "SingleInstanceType"):
        assert instance_count(
            fleet(1, market=market_type, options={"MinTargetCapacity": 1, option: True})
        )


@pytest.mark.parametrize(
    ("market_type", "accepted", "rejected"),
    [
        (
            "spot",
            ("price-capacity-optimized", "lowest-price", "capacity-optimized-prioritized"),
            ("prioritized", "cheapest"),
        ),
        ("on-demand", ("prioritized", "lowest-price"), ("price-capacity-optimized", "diversified")),
    ],
)
def test_spot_and_on_demand_fleets_have_allocation_strategies_of_their_own(
    fleet, refusal_code, local, *, market_type, accepted, rejected
):
    for strategy in rejected:
        options = {"AllocationStrategy": strategy}
        assert (
            refusal_code(fleet, 1, market=market_type, options=options) == "InvalidParameterValue"
        )
    assert local.instances() == []
    for strategy in accepted:
        assert (
            instance_count(fleet(1, market=market_type, options={"AllocationStrategy": strategy}))
            == 1
        )


def test_price_capacity_optimized_takes_the_cheapest_offering(fleet):
    """Ask for two types, of which the fleet gets the cheaper one.

    The local cloud does not know how much capacity a pool has left, as docs/local.md says.
    """
    answer = fleet(
        2,
        types=("g5.2xlarge", "g5.xlarge"),
        options={"AllocationStrategy": "price-capacity-optimized"},
    )
    assert [one["InstanceType"] for one in answer["Instances"]] == ["g5.xlarge"]


def test_a_describe_call_accepts_200_filter_values_at_most(ec2, refusal_code):
    """Send 201 filter values, in one filter and in two.

    The limit is for all filters of a call together. DescribeInstances accepts more ids than that.
    """

    def filters(first, second=0):
        values = [f"i-{number:017x}" for number in range(first + second)]
        filter_list = [{"Name": "tag:a", "Values": values[:first]}]
        return (
            [*filter_list, {"Name": "instance-type", "Values": values[first:]}]
            if second
            else filter_list
        )

    for call in (
        ec2.describe_instances,
        ec2.describe_instance_status,
        ec2.describe_spot_instance_requests,
        ec2.describe_volumes,
    ):
        assert refusal_code(call, Filters=filters(201)) == "FilterLimitExceeded"
        assert refusal_code(call, Filters=filters(150, 51)) == "FilterLimitExceeded"
    assert ec2.describe_instances(Filters=filters(200))["Reservations"] == []
    assert ec2.describe_instances(Filters=filters(150, 50))["Reservations"] == []


@pytest.fixture
def other_subnet(ec2, subnet):
    """A subnet in another zone."""
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    created = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.7.0/24", AvailabilityZone="us-east-1b")
    return created["Subnet"]["SubnetId"]


@pytest.mark.parametrize("when", ["at its launch", "later"])
def test_a_protected_instance_keeps_all_of_its_zone_from_termination(
    ec2, launch, local, refusal_code, other_subnet, *, when
):
    """Terminate instances of two zones in one call.

    EC2's reference says that the instances of other zones are terminated all the same.
    """
    (protected,) = launch(DisableApiTermination=when == "at its launch")
    if when == "later":
        ec2.modify_instance_attribute(
            InstanceId=protected["InstanceId"], DisableApiTermination={"Value": True}
        )
    (same_zone,) = launch()
    (other_zone,) = launch(SubnetId=other_subnet)
    local.settle()
    ids = [one["InstanceId"] for one in (same_zone, protected, other_zone)]
    assert refusal_code(ec2.terminate_instances, InstanceIds=ids) == "OperationNotPermitted"
    local.settle()
    states = {instance.id: instance.state for instance in local.instances()}
    assert [states[one] for one in ids] == ["running", "running", "terminated"]

    ec2.modify_instance_attribute(
        InstanceId=protected["InstanceId"], DisableApiTermination={"Value": False}
    )
    assert len(ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]) == 3


def test_an_unknown_instance_id_fails_the_whole_terminate_call(ec2, launch, local, refusal_code):
    instance_ids = [one["InstanceId"] for one in launch(2)]
    local.settle()
    all_ids = [*instance_ids, "i-00000000000000000"]
    assert (
        refusal_code(ec2.terminate_instances, InstanceIds=all_ids) == "InvalidInstanceID.NotFound"
    )
    assert {instance.state for instance in local.instances()} == {"running"}


def test_a_client_token_whose_instances_are_terminated_is_refused(ec2, local, launch, refusal_code):
    instance_ids = [one["InstanceId"] for one in launch(2, ClientToken="t")]
    ec2.terminate_instances(InstanceIds=instance_ids[:1])
    local.settle()
    assert len(launch(2, ClientToken="t")) == 2, "one of them runs"
    ec2.terminate_instances(InstanceIds=instance_ids)
    local.settle()
    assert refusal_code(launch, 2, ClientToken="t") == "IdempotentInstanceTerminated"
    local.pass_time(3601)
    assert refusal_code(launch, 2, ClientToken="t") == "IdempotentInstanceTerminated", "forgotten"


def test_a_client_token_has_64_characters_at_most(launch, fleet, refusal_code, local):
    assert refusal_code(launch, ClientToken="t" * 65) == "InvalidParameterValue"
    assert refusal_code(fleet, 1, ClientToken="t" * 65) == "InvalidParameterValue"
    assert local.instances() == []
    assert launch(ClientToken="t" * 64)


def test_a_throttle_may_be_inside_the_answer_of_a_fleet(fleet, control, local):
    """Throttle two offerings of a fleet.

    As on EC2, the call succeeds, and the throttled offerings carry the error.
    """
    control.post("throttle", {"action": "CreateFleet", "inside": True, "count": 2})
    answer = fleet(3)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert error_counts(answer) == {"RequestLimitExceeded": 2}
    assert instance_count(answer) == 3, "the other two offerings give them"
    assert error_counts(fleet(1)) == {}


def test_a_fleet_throttled_below_its_minimum_launches_nothing(fleet, control, local):
    control.post("throttle", {"action": "CreateFleet", "inside": True})
    answer = fleet(2, options={"MinTargetCapacity": 2, **ONE_ZONE})
    assert (instance_count(answer), error_counts(answer)) == (0, {"RequestLimitExceeded": 4})
    control.post("throttle", {"clear": True})
    assert instance_count(fleet(2, options={"MinTargetCapacity": 2, **ONE_ZONE})) == 2


def test_a_throttle_inside_fleets_does_not_affect_other_calls(control, launch, ec2):
    control.post("throttle", {"inside": True})
    assert launch()
    assert ec2.describe_instances()["Reservations"]
    (drill,) = control.get("status")["injections"]
    assert (drill["action"], drill["inside"]) == ("*", True)
