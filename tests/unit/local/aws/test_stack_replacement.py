"""Changes that replace a resource."""

from __future__ import annotations

import json
from pathlib import Path

import cfnlint
import pytest

from toolkit.local.aws.stack_replacement import CREATE_ONLY, resource_changes

SCHEMAS = Path(cfnlint.__file__).parent / "data" / "schemas"


@pytest.fixture(scope="module")
def schema_files():
    """Return CloudFormation's schemas as cfn-lint ships them: type → file."""
    return json.loads((SCHEMAS / "providers" / "us-east-1.json").read_text())


@pytest.mark.parametrize("kind", sorted(CREATE_ONLY))
def test_the_create_only_properties_are_those_of_the_schemas(kind, schema_files):
    """Compare the top-level properties; the stacks here change no nested ones alone."""
    text = (SCHEMAS / "resources" / f"{schema_files[kind]}.json").read_text()
    paths = [
        path.removeprefix("/properties/")
        for path in json.loads(text).get("createOnlyProperties", ())
    ]
    assert {path for path in paths if "/" not in path} == CREATE_ONLY[kind]


def test_a_resource_that_names_a_replaced_one_changes_too():
    """Move a subnet: its instance is replaced, another route is not."""
    old = {
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"CidrBlock": "10.0.0.0/24"}},
        "Head": {
            "Type": "AWS::EC2::Instance",
            "Properties": {"SubnetId": {"Ref": "Subnet"}, "ImageId": "ami-1"},
        },
        "Away": {"Type": "AWS::EC2::Route", "Properties": {"RouteTableId": "rtb-1"}},
    }
    new = {
        **old,
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"CidrBlock": "10.0.1.0/24"}},
    }
    changes = resource_changes(old, new, ["Subnet"])
    assert [(change.name, change.replaces) for change in changes] == [
        ("Subnet", True),
        ("Head", True),
    ]


def test_an_instances_disk_is_conditional_for_a_change_set_and_a_new_instance_for_an_update():
    def head(size):
        disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": size}}
        return {
            "Head": {"Type": "AWS::EC2::Instance", "Properties": {"BlockDeviceMappings": [disk]}}
        }

    (change,) = resource_changes(head(8), head(16), ["Head"])
    assert (change.replacement, change.replaces) == ("Conditional", True)
