"""The fast XML of instances, compared with the slow one of moto."""

from __future__ import annotations

from moto.ec2.responses import EC2Response
from moto.ec2.responses.instances import InstanceResponse

# Errors of moto: EC2 has the owner "amazon" and the public name of an address it chose itself.
WRONG = ("Association.IpOwnerId", "Association.PublicDnsName")


def leaves(value, path=""):
    """Return every leaf of the value, by its path."""
    if isinstance(value, dict):
        return {
            k: v for name, one in value.items() for k, v in leaves(one, f"{path}.{name}").items()
        }
    if isinstance(value, list):
        values = {}
        for index, one in enumerate(value):
            values.update(leaves(one, f"{path}[{index}]"))
        return values
    return {path: value}


def test_the_own_xml_of_instances_has_every_value_of_motos(local, ec2, launch, spot, monkeypatch):
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "<&>", "Value": '"'}]}]
    iam = local.client("iam")
    iam.create_instance_profile(InstanceProfileName="p")
    launch(2, TagSpecifications=tags, IamInstanceProfile={"Name": "p"}, **spot)
    nic = {"DeviceIndex": 0, "AssociatePublicIpAddress": True}
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    launch(SubnetId=None, NetworkInterfaces=[{**nic, "SubnetId": subnet}])
    terminated_id = launch()[0]["InstanceId"]
    local.settle()
    ec2.terminate_instances(InstanceIds=[terminated_id])
    local.settle()
    own_values = leaves(ec2.describe_instances()["Reservations"])
    monkeypatch.setattr(EC2Response, "describe_instances", InstanceResponse.describe_instances)
    moto_values = leaves(ec2.describe_instances()["Reservations"])
    differences = {
        path: (value, own_values.get(path))
        for path, value in moto_values.items()
        if own_values.get(path) != value and not path.endswith(WRONG)
    }
    assert differences == {}


def test_pages_have_whole_reservations_and_every_instance(ec2, launch):
    for _ in range(4):
        launch(3)
    instance_ids, pages = [], 0
    for page in ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 7}):
        pages += 1
        instance_ids += [
            one["InstanceId"] for group in page["Reservations"] for one in group["Instances"]
        ]
    assert len(instance_ids) == len(set(instance_ids)) == 12
    assert pages == 2
