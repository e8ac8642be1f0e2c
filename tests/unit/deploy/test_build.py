"""An image build, with a fake builder."""

import json

import pytest

from tests.unit.deploy.samples import Clock, FakeClients, FakeS3, Report, example, refusal
from toolkit.deploy.boot_progress import SharedPhase
from toolkit.deploy.build import BUILD_SECONDS, Builder, BuildResources
from toolkit.deploy.bundle import Bundle
from toolkit.deploy.images import BaseImage, ImageSpec
from toolkit.deploy.storage import Bucket
from toolkit.errors import ImageBuildFailed

SPEC = ImageSpec("compute", "toolkit-compute-0123456789ab", Bundle("sha", b"zip"), "25.11.8")
STATUS = ("images", f"status/{SPEC.name}.json")


class FakeEc2:
    """EC2 with instances and images by state.

    `actions` lists the calls that changed something.
    """

    def __init__(self) -> None:
        self.instances, self.images, self.actions = {}, {}, []
        self.requests, self.profile_unknown = [], 0

    def run_instances(self, **request):
        if self.profile_unknown:
            self.profile_unknown -= 1
            raise refusal("InvalidParameterValue", "Invalid IAM Instance Profile name")
        self.requests.append(request)
        self.instances["i-new"] = "running"
        return {"Instances": [{"InstanceId": "i-new"}]}

    def describe_instances(self, *, InstanceIds=None, Filters=None):  # noqa: N803  # boto3's names
        del Filters
        chosen = InstanceIds or [
            key for key, state in self.instances.items() if state != "terminated"
        ]
        items = [{"InstanceId": key, "State": {"Name": self.instances[key]}} for key in chosen]
        return {"Reservations": [{"Instances": items}] if items else []}

    def terminate_instances(self, *, InstanceIds):  # noqa: N803  # boto3's names
        for key in InstanceIds:
            self.instances[key] = "terminated"
            self.actions.append(f"terminated {key}")

    def create_image(self, *, InstanceId, Name, **_):  # noqa: N803  # boto3's names
        assert self.instances[InstanceId] == "stopped"
        if self.images:
            raise refusal("InvalidAMIName.Duplicate", f"AMI name {Name} is already in use")
        self.images["ami-1"] = "pending"
        self.actions.append(f"image {Name}")
        return {"ImageId": "ami-1"}

    def describe_images(self, *, ImageIds):  # noqa: N803  # boto3's names
        (key,) = ImageIds
        state, self.images[key] = self.images[key], "available"
        return {"Images": [{"State": state}]}

    def get_paginator(self, operation):
        assert operation == "describe_images"
        return self

    def paginate(self, **_):
        items = [
            {"ImageId": key, "Name": SPEC.name, "State": state, "CreationDate": ""}
            for key, state in self.images.items()
        ]
        return [{"Images": items}]

    def get_console_output(self, **_):
        return {"Output": "E: Unable to locate package"}


class FakeBuild:
    def __init__(self) -> None:
        self.ec2, self.s3, self.clock, self.phase = FakeEc2(), FakeS3(), Clock(), Report()
        resources = BuildResources(Bucket(self.s3, "images"), "builder-profile", "subnet-1")
        self.builder = Builder(
            FakeClients(ec2=self.ec2),
            example(),
            resources,
            BaseImage("ami-base", "debian", "/dev/xvda"),
            sleep=self.clock.sleep,
            clock=self.clock,
        )

    def write_status(self, state, **fields):
        self.s3.objects[STATUS] = json.dumps({"state": state, **fields}).encode()

    def write_status_later(self, seconds, state, instance_state="running", **fields):
        def act():
            self.write_status(state, **fields)
            self.ec2.instances["i-new"] = instance_state

        self.clock.at(seconds, act)

    def build(self):
        return self.builder.build(SPEC, self.phase)


def test_a_builder_that_powers_off_becomes_the_image():
    """Launch, wait, make the image, wait and terminate, in this order.

    The image is available before its id is returned.
    """
    fake = FakeBuild()
    fake.write_status_later(3, "running", task="Install slurmd", done=2, total=9)
    fake.write_status_later(9, "ok", "stopped")
    assert fake.build() == "ami-1"
    assert fake.ec2.images["ami-1"] == "available"
    assert "Install slurmd" in fake.phase.updates
    assert fake.ec2.actions == [f"image {SPEC.name}", "terminated i-new"]


def test_a_builder_is_stopped_and_not_terminated_by_its_poweroff():
    """Stop the builder, because a terminated instance has no disk to copy.

    A public address lets the builder download packages.
    """
    fake = FakeBuild()
    fake.write_status_later(3, "ok", "stopped")
    fake.build()
    (request,) = fake.ec2.requests
    assert request["InstanceInitiatedShutdownBehavior"] == "stop"
    assert request["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is True
    assert request["MetadataOptions"]["HttpTokens"] == "required"


@pytest.mark.parametrize(
    ("state", "instance_state", "expected"),
    [
        ("failed", "running", "no such package"),
        ("running", "stopped", "Unable to locate package"),
        ("running", "terminated", "Unable to locate package"),
    ],
)
def test_a_failed_build_names_the_cause_and_terminates_its_builder(state, instance_state, expected):
    """Read the cause from the status object, else from the console.

    A builder may fail before it can write its status.
    """
    fake = FakeBuild()
    fake.write_status_later(3, state, instance_state, error="no such package", task="Install")
    with pytest.raises(ImageBuildFailed, match=expected):
        fake.build()
    assert fake.ec2.instances["i-new"] == "terminated"
    assert not fake.ec2.images


def test_a_build_over_an_hour_is_cancelled_and_its_builder_terminated():
    """Cancel the build after an hour, because its builder costs money."""
    fake = FakeBuild()
    with pytest.raises(ImageBuildFailed, match="after an hour"):
        fake.build()
    assert fake.clock.now >= 1000 + BUILD_SECONDS
    assert fake.ec2.instances["i-new"] == "terminated"


def test_the_builder_of_a_killed_deploy_is_reused():
    """Go on with the running builder instead of launching a second one."""
    fake = FakeBuild()
    fake.ec2.instances["i-old"] = "running"
    fake.write_status("running")

    def off():
        fake.write_status("ok")
        fake.ec2.instances["i-old"] = "stopped"

    fake.clock.at(3, off)
    assert fake.build() == "ami-1"
    assert fake.ec2.requests == []


def test_a_failed_builder_is_replaced():
    """Replace the builder, because the same cause would fail again.

    The state of its disk is unknown.
    """
    fake = FakeBuild()
    fake.ec2.instances["i-old"] = "running"
    fake.write_status("failed")
    fake.write_status_later(3, "ok", "stopped")
    fake.build()
    assert fake.ec2.instances["i-old"] == "terminated"


def test_build_waits_for_an_instance_profile_that_ec2_does_not_know_so_far():
    """Repeat the launch while EC2 does not know the profile.

    IAM passes a new profile on to EC2 after some seconds.
    """
    fake = FakeBuild()
    fake.ec2.profile_unknown = 2
    fake.write_status_later(8, "ok", "stopped")
    assert fake.build() == "ami-1"


def test_concurrent_builds_share_one_line():
    """Show the progress of two builders in one phase."""
    report = Report()
    shared = SharedPhase(report)
    shared.operation("head").update("apt", done=1, total=3)
    shared.operation("compute").update("pip")
    assert report.updates[-1] == "head: [1/3] apt  ·  compute: pip"


@pytest.mark.parametrize("instance_state", ["shutting-down", "terminated", "stopped"])
def test_an_image_that_another_deploy_made_of_the_builder_is_used(instance_state):
    """Return the image of the deploy that was first.

    The second deploy finds the builder terminated, or the image's name in use.
    """
    fake = FakeBuild()

    def create_image():
        fake.write_status("ok")
        fake.ec2.instances["i-new"] = instance_state
        fake.ec2.images["ami-theirs"] = "pending"

    fake.clock.at(3, create_image)
    assert fake.build() == "ami-theirs"
    assert fake.ec2.images == {"ami-theirs": "available"}
