"""Updates of a stack in the local cloud: new before old, and back again if one fails."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from toolkit.local.aws import stack_resources

SETTLED = (
    "CREATE_COMPLETE",
    "ROLLBACK_COMPLETE",
    "UPDATE_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE",
    "UPDATE_ROLLBACK_FAILED",
    "DELETE_COMPLETE",
)
VPC = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}}
SUBNET = {
    "Type": "AWS::EC2::Subnet",
    "Properties": {
        "VpcId": {"Ref": "Vpc"},
        "CidrBlock": "10.9.1.0/24",
        "AvailabilityZone": "us-east-1a",
    },
}
BROKEN = {"Type": "AWS::Nope::Thing"}


@pytest.fixture
def cfn(local):
    return local.client("cloudformation")


@pytest.fixture
def stack(local, cfn):
    """A stack that a test creates and updates by its resources."""
    return Stack(local, cfn)


class Stack:
    def __init__(self, local, cfn) -> None:
        self.local, self.cfn, self.count = local, cfn, 0

    def change_set(self, resources, kind):
        self.count += 1
        return self.cfn.create_change_set(
            StackName="demo",
            ChangeSetName=f"change-{self.count}",
            ChangeSetType=kind,
            Capabilities=["CAPABILITY_NAMED_IAM"],
            TemplateBody=json.dumps({"Resources": resources}),
        )

    def apply(self, resources, kind="UPDATE"):
        change_set = self.change_set(resources, kind)
        self.cfn.execute_change_set(ChangeSetName=change_set["Id"])
        return self.settled()

    def settled(self):
        def status():
            found = self.cfn.describe_stacks(StackName="demo")["Stacks"][0]["StackStatus"]
            return found if found in SETTLED else None

        return self.local.until(status)

    def resource(self, name):
        described = self.cfn.describe_stack_resources(StackName="demo")["StackResources"]
        return {item["LogicalResourceId"]: item.get("PhysicalResourceId") for item in described}[
            name
        ]

    def states(self):
        """Return the states of the stack itself, oldest first."""
        events = self.cfn.describe_stack_events(StackName="demo")["StackEvents"][::-1]
        return [e["ResourceStatus"] for e in events if e["LogicalResourceId"] == "demo"]

    def events(self, name):
        events = self.cfn.describe_stack_events(StackName="demo")["StackEvents"][::-1]
        return [
            (e["ResourceStatus"], e["PhysicalResourceId"])
            for e in events
            if e["LogicalResourceId"] == name
        ]


def instance(local, **properties):
    own = {"ImageId": local.image, "InstanceType": "m7i.large", "SubnetId": {"Ref": "Subnet"}}
    return {"Type": "AWS::EC2::Instance", "Properties": own | properties}


def role(name, path="/"):
    trust = {"Version": "2012-10-17", "Statement": []}
    properties = {"RoleName": name, "Path": path, "AssumeRolePolicyDocument": trust}
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def test_a_replacement_is_made_before_the_old_resource_is_deleted(local, stack, ec2):
    """Replace an instance; the old one ends in the clean-up."""
    base = {"Vpc": VPC, "Subnet": SUBNET}
    stack.apply({**base, "Head": instance(local)}, "CREATE")
    old = stack.resource("Head")
    assert stack.apply({**base, "Head": instance(local, KeyName="one")}) == "UPDATE_COMPLETE"
    new = stack.resource("Head")
    assert new != old
    states = [state for state, _ in stack.events("Head")]
    assert states == [
        *("CREATE_IN_PROGRESS", "CREATE_COMPLETE"),
        *("UPDATE_IN_PROGRESS", "UPDATE_COMPLETE"),
        *("DELETE_IN_PROGRESS", "DELETE_COMPLETE"),
    ]
    assert stack.events("Head")[-1][1] == old
    assert stack.states()[-3:] == [
        "UPDATE_IN_PROGRESS",
        "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_COMPLETE",
    ]
    rows = ec2.describe_instances(InstanceIds=[old, new])["Reservations"]
    found = {row["Instances"][0]["InstanceId"]: row["Instances"][0]["State"] for row in rows}
    assert {key: state["Name"] for key, state in found.items()} == {
        old: "terminated",
        new: "running",
    }


def test_a_replacement_at_the_same_address_is_refused_and_rolled_back(local, stack):
    """Replace an instance whose address the old one still has."""
    base = {"Vpc": VPC, "Subnet": SUBNET}
    address = {"PrivateIpAddress": "10.9.1.10"}
    stack.apply({**base, "Head": instance(local, **address)}, "CREATE")
    old = stack.resource("Head")
    status = stack.apply({**base, "Head": instance(local, KeyName="one", **address)})
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert stack.resource("Head") == old
    assert stack.states()[-4:] == [
        "UPDATE_IN_PROGRESS",
        "UPDATE_ROLLBACK_IN_PROGRESS",
        "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_ROLLBACK_COMPLETE",
    ]


def test_a_replacement_with_the_same_name_is_refused(stack):
    """Change a role's path, which replaces it, while its name is taken."""
    stack.apply({"Role": role("worker")}, "CREATE")
    assert stack.apply({"Role": role("worker", "/other/")}) == "UPDATE_ROLLBACK_COMPLETE"
    assert any(state == "UPDATE_FAILED" for state, _ in stack.events("Role"))


def test_a_failed_update_leaves_the_old_template_and_resources_in_force(local, stack, cfn, ec2):
    """Replace and add resources; then fail, and find all as before."""
    first = {"Vpc": VPC, "Subnet": SUBNET, "Head": instance(local, InstanceType="m7i.large")}
    stack.apply(first, "CREATE")
    before = {name: stack.resource(name) for name in first}
    other = {**SUBNET, "Properties": {**SUBNET["Properties"], "CidrBlock": "10.9.2.0/24"}}
    second = {
        **first,
        "Subnet": other,
        "Extra": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.8.0.0/16"}},
        "Late": {**BROKEN, "DependsOn": ["Head", "Extra"]},
    }
    assert stack.apply(second) == "UPDATE_ROLLBACK_COMPLETE"
    assert {name: stack.resource(name) for name in first} == before
    body = cfn.get_template(StackName="demo")["TemplateBody"]
    assert dict(body["Resources"]) == first
    cidrs = {subnet["CidrBlock"] for subnet in ec2.describe_subnets()["Subnets"]}
    assert "10.9.1.0/24" in cidrs
    assert "10.9.2.0/24" not in cidrs
    assert not ec2.describe_vpcs(Filters=[{"Name": "cidr", "Values": ["10.8.0.0/16"]}])["Vpcs"]
    # A stack in this state may be updated again.
    assert stack.apply({**first, "More": second["Extra"]}) == "UPDATE_COMPLETE"


def test_a_rollback_that_can_not_bring_a_resource_back_waits_for_a_person(local, stack, cfn, ec2):
    """End an instance from outside, update it, and skip it afterwards."""
    first = {"Vpc": VPC, "Subnet": SUBNET, "Head": instance(local)}
    stack.apply(first, "CREATE")
    ec2.terminate_instances(InstanceIds=[stack.resource("Head")])
    local.settle()
    larger = {**first, "Head": instance(local, InstanceType="m7i.xlarge")}
    assert stack.apply(larger) == "UPDATE_ROLLBACK_FAILED"
    with pytest.raises(ClientError, match="UPDATE_ROLLBACK_FAILED state and can not be updated"):
        stack.change_set(larger, "UPDATE")
    cfn.continue_update_rollback(StackName="demo")
    assert stack.settled() == "UPDATE_ROLLBACK_FAILED"
    with pytest.raises(ClientError, match="can not be skipped"):
        cfn.continue_update_rollback(StackName="demo", ResourcesToSkip=["Vpc"])
    cfn.continue_update_rollback(StackName="demo", ResourcesToSkip=["Head"])
    assert stack.settled() == "UPDATE_ROLLBACK_COMPLETE"
    assert stack.apply({"Vpc": VPC, "Subnet": SUBNET}) == "UPDATE_COMPLETE"


def test_a_stack_that_was_never_made_can_only_be_deleted(stack, cfn):
    """Fail the first creation; both kinds of change set are refused then."""
    assert stack.apply({"Vpc": VPC, "Late": {**BROKEN, "DependsOn": "Vpc"}}, "CREATE") == (
        "ROLLBACK_COMPLETE"
    )
    with pytest.raises(ClientError, match="ROLLBACK_COMPLETE state and can not be updated"):
        stack.change_set({"Vpc": VPC}, "UPDATE")
    with pytest.raises(ClientError, match="already exists"):
        stack.change_set({"Vpc": VPC}, "CREATE")
    cfn.delete_stack(StackName="demo")
    stack.local.until(
        lambda: not cfn.list_stacks(StackStatusFilter=["ROLLBACK_COMPLETE"])["StackSummaries"]
    )


def test_a_change_set_says_what_is_replaced(local, stack, cfn):
    """List changes in place, possible and certain replacements, and what names these."""
    first = {"Vpc": VPC, "Subnet": SUBNET, "Head": instance(local)}
    stack.apply(first, "CREATE")
    moved = {**SUBNET, "Properties": {**SUBNET["Properties"], "CidrBlock": "10.9.2.0/24"}}
    for changed, expected in (
        ({"Head": instance(local, InstanceType="m7i.xlarge")}, {"Head": "Conditional"}),
        ({"Head": instance(local, Tags=[{"Key": "a", "Value": "b"}])}, {"Head": "False"}),
        ({"Subnet": moved}, {"Subnet": "True", "Head": "True"}),
    ):
        change_set = stack.change_set({**first, **changed}, "UPDATE")
        described = cfn.describe_change_set(ChangeSetName=change_set["Id"])["Changes"]
        changes = [item["ResourceChange"] for item in described]
        assert {c["LogicalResourceId"]: c["Replacement"] for c in changes} == expected


def data_volume(**properties):
    own = {"AvailabilityZone": "us-east-1a", "Size": 8, "VolumeType": "gp3", "Encrypted": True}
    return {
        "Type": "AWS::EC2::Volume",
        "DeletionPolicy": "Snapshot",
        "UpdateReplacePolicy": "Snapshot",
        "Properties": {**own, "Tags": [{"Key": "role", "Value": "data"}], **properties},
    }


ATTACHMENT = {
    "Type": "AWS::EC2::VolumeAttachment",
    "Properties": {
        "VolumeId": {"Ref": "Data"},
        "InstanceId": {"Ref": "Head"},
        "Device": "/dev/sdf",
    },
}


def attached_to(ec2, volume):
    (row,) = ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
    return [item["InstanceId"] for item in row["Attachments"]]


def test_an_instance_with_a_volume_can_not_be_replaced_by_one_update(local, stack, ec2):
    """Replace the instance; the volume can't be in two places."""
    base = {"Vpc": VPC, "Subnet": SUBNET, "Data": data_volume(), "Attachment": ATTACHMENT}
    stack.apply({**base, "Head": instance(local)}, "CREATE")
    old, volume = stack.resource("Head"), stack.resource("Data")
    assert attached_to(ec2, volume) == [old]
    status = stack.apply({**base, "Head": instance(local, KeyName="one")})
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert any(state == "UPDATE_FAILED" for state, _ in stack.events("Attachment"))
    assert stack.resource("Head") == old
    assert attached_to(ec2, volume) == [old]


def test_a_volume_goes_to_the_next_instance_by_two_updates(local, stack, ec2):
    """Take the stopped instance away, and bring another."""
    base = {"Vpc": VPC, "Subnet": SUBNET, "Data": data_volume()}
    full = {**base, "Head": instance(local), "Attachment": ATTACHMENT}
    stack.apply(full, "CREATE")
    old, volume = stack.resource("Head"), stack.resource("Data")
    ec2.stop_instances(InstanceIds=[old])
    local.settle()
    assert stack.apply(base) == "UPDATE_COMPLETE"
    assert not [state for state, _ in stack.events("Attachment") if state == "DELETE_FAILED"]
    assert stack.apply(full) == "UPDATE_COMPLETE"
    assert stack.resource("Data") == volume
    assert attached_to(ec2, volume) == [stack.resource("Head")] != [old]


def test_a_mounted_volume_keeps_its_attachment_from_being_deleted(local, stack, ec2, monkeypatch):
    """Remove the attachment of a running instance; the volume is busy."""
    monkeypatch.setattr(stack_resources, "_DETACH_PATIENCE", 0.2)
    base = {"Vpc": VPC, "Subnet": SUBNET, "Data": data_volume(), "Head": instance(local)}
    stack.apply({**base, "Attachment": ATTACHMENT}, "CREATE")
    stack.apply(base)
    assert [state for state, _ in stack.events("Attachment")][-1] == "DELETE_FAILED"
    assert attached_to(ec2, stack.resource("Data")) == [stack.resource("Head")]


def test_a_deleted_volume_leaves_a_snapshot_with_its_tags(stack, ec2):
    stack.apply({"Vpc": VPC, "Data": data_volume()}, "CREATE")
    volume = stack.resource("Data")
    assert stack.apply({"Vpc": VPC}) == "UPDATE_COMPLETE"
    own = [{"Name": "volume-id", "Values": [volume]}]
    (snapshot,) = ec2.describe_snapshots(Filters=own)["Snapshots"]
    assert {"Key": "role", "Value": "data"} in snapshot["Tags"]
    with pytest.raises(ClientError, match="does not exist"):
        ec2.describe_volumes(VolumeIds=[volume])


def test_a_volume_grows_in_place_and_stays_in_its_zone(stack, ec2):
    stack.apply({"Vpc": VPC, "Data": data_volume()}, "CREATE")
    volume = stack.resource("Data")
    assert stack.apply({"Vpc": VPC, "Data": data_volume(Size=20)}) == "UPDATE_COMPLETE"
    (row,) = ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
    assert (row["Size"], row["VolumeType"], row["Encrypted"]) == (20, "gp3", True)
    moved = data_volume(Size=20, AvailabilityZone="us-east-1b")
    assert stack.apply({"Vpc": VPC, "Data": moved}) == "UPDATE_ROLLBACK_COMPLETE"


def test_an_update_of_tags_leaves_the_tags_of_others(local, stack, ec2):
    """Change the template's tags of an instance with another tag."""

    def tagged(**tags):
        return instance(local, Tags=[{"Key": key, "Value": tags[key]} for key in tags])

    def tags_now():
        of_head = [{"Name": "resource-id", "Values": [head]}]
        rows = ec2.describe_tags(Filters=of_head)["Tags"]
        return {tag["Key"]: tag["Value"] for tag in rows if not tag["Key"].startswith("aws:")}

    base = {"Vpc": VPC, "Subnet": SUBNET}
    stack.apply({**base, "Head": tagged(first="1", second="2")}, "CREATE")
    head = stack.resource("Head")
    ec2.create_tags(Resources=[head], Tags=[{"Key": "toolkit:bundle", "Value": "sha"}])
    assert stack.apply({**base, "Head": tagged(first="one")}) == "UPDATE_COMPLETE"
    assert stack.resource("Head") == head
    assert tags_now() == {"first": "one", "toolkit:bundle": "sha"}
