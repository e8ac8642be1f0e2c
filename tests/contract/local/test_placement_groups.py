"""Placement groups of stacks, and launches into them."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.contract.local.test_stack_updates import Stack

GROUP = {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}}


@pytest.fixture
def stack(local):
    return Stack(local, local.client("cloudformation"))


def places(ec2):
    answer = ec2.describe_instance_topology(
        Filters=[{"Name": "instance-type", "Values": ["m7i.large"]}]
    )
    return {item["InstanceId"]: item for item in answer["Instances"]}


def test_an_instance_is_launched_into_the_group_of_a_stack(local, stack, ec2, launch):
    """List the group with the instance, below its own switches."""
    assert stack.apply({"Group": GROUP}, "CREATE") == "CREATE_COMPLETE"
    name = stack.resource("Group")
    inside = launch(2, InstanceType="m7i.large", Placement={"GroupName": name})
    (outside,) = launch(1, InstanceType="m7i.large")
    local.settle()
    assert [item["Placement"]["GroupName"] for item in inside] == [name, name]
    found = places(ec2)
    one, two = (found[item["InstanceId"]] for item in inside)
    assert one["GroupName"] == name
    assert one["NetworkNodes"] == two["NetworkNodes"]
    other = found[outside["InstanceId"]]["NetworkNodes"]
    assert other[0] == one["NetworkNodes"][0]
    assert not {*other[1:]} & {*one["NetworkNodes"][1:]}


def test_a_launch_into_an_unknown_group_is_refused(launch):
    with pytest.raises(ClientError, match=r"The Placement Group 'nowhere' is unknown"):
        launch(1, Placement={"GroupName": "nowhere"})


def test_a_group_with_a_live_instance_is_not_deleted(local, stack, ec2, launch):
    stack.apply({"Group": GROUP}, "CREATE")
    (instance,) = launch(1, Placement={"GroupName": stack.resource("Group")})
    stack.cfn.delete_stack(StackName="demo")
    local.until(lambda: stack.states()[-1] == "DELETE_FAILED")
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    local.settle()
    stack_id = stack.cfn.describe_stacks(StackName="demo")["Stacks"][0]["StackId"]
    stack.cfn.delete_stack(StackName="demo")
    local.until(lambda: status_of(stack, stack_id) == "DELETE_COMPLETE")


def status_of(stack, stack_id):
    return stack.cfn.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"]


def test_the_topology_takes_no_filter_that_ec2_lacks(ec2):
    with pytest.raises(ClientError, match="The filter 'tag:a' is invalid"):
        ec2.describe_instance_topology(Filters=[{"Name": "tag:a", "Values": ["b"]}])
