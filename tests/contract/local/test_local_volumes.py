"""EBS volumes of the local cloud: refusals in EC2's words, and content that stays."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError


def refusal(call, **arguments):
    """Return the code of the refusal that a call gets."""
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return refused.value.response["Error"]["Code"]


@pytest.fixture
def make_volume(ec2):
    """A function that makes a volume, and returns its id."""

    def make(zone="us-east-1a", **more):
        return ec2.create_volume(AvailabilityZone=zone, **({"Size": 8} | more))["VolumeId"]

    return make


@pytest.fixture
def running(local, launch):
    """A function that launches an instance and waits until it runs."""

    def run():
        (instance,) = launch()
        local.settle()
        return instance["InstanceId"]

    return run


@pytest.fixture
def attach(ec2):
    def run(volume, instance, device="/dev/sdf"):
        return ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device=device)

    return run


def state(ec2, volume):
    (row,) = ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
    return row["State"], [item["State"] for item in row["Attachments"]]


def beginning(path):
    with path.open("rb") as file:
        return file.read(14)


def test_a_volume_has_one_instance_at_a_time(ec2, make_volume, running, attach):
    volume, first, second = make_volume(), running(), running()
    attach(volume, first)
    assert refusal(attach, volume=volume, instance=second) == "VolumeInUse"
    assert refusal(ec2.delete_volume, VolumeId=volume) == "VolumeInUse"
    other = make_volume()
    assert refusal(attach, volume=other, instance=first) == "InvalidParameterValue"


def test_a_volume_of_another_zone_is_refused(make_volume, running, attach):
    volume = make_volume(zone="us-east-1b")
    assert refusal(attach, volume=volume, instance=running()) == "InvalidVolume.ZoneMismatch"


def test_an_instance_that_does_not_run_yet_takes_no_volume(make_volume, launch, attach):
    (instance,) = launch()
    code = refusal(attach, volume=make_volume(), instance=instance["InstanceId"])
    assert code == "IncorrectState"


def test_a_volume_that_is_not_attached_can_not_be_detached(ec2, make_volume):
    assert refusal(ec2.detach_volume, VolumeId=make_volume()) == "IncorrectState"


def test_a_root_disk_can_not_be_detached(ec2, running, show):
    (disk,) = show(running())["BlockDeviceMappings"]
    code = refusal(ec2.detach_volume, VolumeId=disk["Ebs"]["VolumeId"])
    assert code == "OperationNotPermitted"


def test_a_detachment_waits_for_the_instance_that_has_mounted_the_volume(
    local, ec2, make_volume, running, attach
):
    """Detach from a running instance; nothing happens until the instance is stopped."""
    volume, instance = make_volume(), running()
    attach(volume, instance)
    ec2.detach_volume(VolumeId=volume)
    local.pass_time(120)
    assert state(ec2, volume) == ("in-use", ["detaching"])
    ec2.stop_instances(InstanceIds=[instance])
    local.settle()
    local.clock.offset += 2
    local.until(lambda: state(ec2, volume) == ("available", []))


def test_the_content_of_a_volume_outlives_its_instance(local, ec2, make_volume, running, attach):
    """Terminate the instance; the next one and a snapshot have its bytes."""
    volume, first = make_volume(), running()
    attach(volume, first)
    content = local.cloud.options.state / "volumes" / f"{volume}.img"
    assert content.stat().st_size == 8 << 30
    with content.open("r+b") as file:
        file.write(b"state of Slurm")
    ec2.terminate_instances(InstanceIds=[first])
    local.settle()
    assert state(ec2, volume) == ("available", [])
    attach(volume, running())
    assert beginning(content) == b"state of Slurm"

    snapshot = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    restored = make_volume(SnapshotId=snapshot, Size=9)
    attach(restored, running())
    file = content.with_name(f"{restored}.img")
    assert (file.stat().st_size, beginning(file)) == (9 << 30, b"state of Slurm")


def test_a_volume_grows_and_does_not_shrink(local, ec2, make_volume, running, attach):
    volume, instance = make_volume(), running()
    attach(volume, instance)
    ec2.modify_volume(VolumeId=volume, Size=12)
    assert local.cloud.tables.instances[instance].volumes == {volume: 12}
    assert refusal(ec2.modify_volume, VolumeId=volume, Size=8) == "InvalidParameterValue"


def test_a_deleted_volume_leaves_no_content(local, ec2, make_volume, running, attach):
    volume, instance = make_volume(), running()
    attach(volume, instance)
    ec2.terminate_instances(InstanceIds=[instance])
    local.settle()
    ec2.delete_volume(VolumeId=volume)
    assert list((local.cloud.options.state / "volumes").iterdir()) == []
