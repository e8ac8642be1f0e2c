"""Image builders that a killed deploy left.

They are terminated once no deploy can wait for them.
"""

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.deploy.samples import FakeClients, Report, example
from toolkit.deploy import abandoned_builders, image_build_stack
from toolkit.deploy.images import BaseImage, ImageInput, required_images
from toolkit.deploy.user_data import builder_script

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SOURCE = ImageInput(BaseImage("ami-base", "debian", "/dev/xvda"))


class Ec2:
    """EC2 with builders by id and images by name.

    It filters by tag and by state, as EC2 does.
    """

    def __init__(self) -> None:
        self.instances, self.images, self.operation = {}, {}, ""

    def builder(self, key, image, *, minutes=5, state="running"):
        label = [
            {"Key": "toolkit:role", "Value": "builder"},
            {"Key": "toolkit:image", "Value": image},
        ]
        self.instances[key] = {
            "InstanceId": key,
            "State": {"Name": state},
            "Tags": label if image else label[:1],
            "LaunchTime": NOW - timedelta(minutes=minutes),
        }

    def get_paginator(self, operation):
        self.operation = operation
        return self

    def paginate(self, *, Filters, Owners=None):  # noqa: N803  # boto3's names
        del Owners
        filters = {item["Name"]: item["Values"] for item in Filters}
        if self.operation == "describe_images":
            images = [
                {"ImageId": f"ami-{name}", "Name": name, "State": state, "CreationDate": ""}
                for name, state in self.images.items()
                if name in filters["name"]
            ]
            return [{"Images": images}]
        assert filters["tag:toolkit:role"] == ["builder"]
        states = filters["instance-state-name"]
        items = [
            instance for instance in self.instances.values() if instance["State"]["Name"] in states
        ]
        return [{"Reservations": [{"Instances": items}]}]

    def terminate_instances(self, *, InstanceIds):  # noqa: N803  # boto3's names
        for key in InstanceIds:
            self.instances[key]["State"] = {"Name": "terminated"}


@pytest.fixture
def ec2():
    return Ec2()


def test_a_builder_is_abandoned_once_its_image_is_available(ec2):
    """Find the builder of a deploy that was killed.

    Builders of other images are not abandoned.
    """
    ec2.images = {"done": "available", "copied": "pending"}
    ec2.builder("i-left", "done", state="stopped")
    ec2.builder("i-work", "other")
    ec2.builder("i-copy", "copied", state="stopped")
    assert abandoned_builders.find_abandoned(ec2, NOW) == ("i-left",)


def test_a_builder_older_than_the_longest_build_is_abandoned(ec2):
    """Find the builder of a failed build whose deploy was killed.

    The mended image has another name, so no later deploy looks for this builder.
    """
    ec2.builder("i-old", "never", minutes=91)
    ec2.builder("i-nameless", "", minutes=91, state="stopped")
    ec2.builder("i-gone", "never", minutes=91, state="terminated")
    ec2.builder("i-new", "never", minutes=89)
    assert abandoned_builders.find_abandoned(ec2, NOW) == ("i-old", "i-nameless")


def test_the_next_deploy_terminates_the_builder_of_a_killed_one(ec2, monkeypatch):
    """Terminate an abandoned builder even if no image has to be built."""
    monkeypatch.setattr(abandoned_builders, "now", lambda: NOW)
    specs = required_images(example(), SOURCE)
    ec2.images = {spec.name: "available" for spec in specs}
    ec2.builder("i-left", specs[0].name, state="stopped")
    image_ids = image_build_stack.ensure_images(example(), FakeClients(ec2=ec2), SOURCE, Report())
    assert image_ids == {spec.kind: f"ami-{spec.name}" for spec in specs}
    assert ec2.instances["i-left"]["State"] == {"Name": "terminated"}


def test_a_builder_powers_off_however_its_first_boot_ends():
    """Set the trap before the first command that can fail.

    A deploy that still waits finds the builder stopped.
    """
    lines = builder_script(example(), bucket="b", image="i", sha="s").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[:2] == ["set -euo pipefail", "trap 'systemctl poweroff' EXIT"]
