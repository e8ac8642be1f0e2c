"""Destroy terminates the head node first and leaves no resource."""

from datetime import UTC, datetime

import pytest

from tests.unit.deploy.samples import Clock, FakeClients, Report, example, refusal
from toolkit.deploy import destroy as module
from toolkit.deploy.destroy import Destroyer
from toolkit.deploy.tagged_resources import TaggedResource
from toolkit.errors import DestroyIncomplete


class Cloud:
    """AWS with instances, two stacks and a bucket.

    The head node launches once more before it is terminated.
    """

    def __init__(self, clock) -> None:
        self.clock = clock
        self.instances = {"i-node": "compute", "i-head": "head"}
        self.status, self.actions, self.late = "CREATE_COMPLETE", [], ["i-late"]
        self.deletes, self.images_stack, self.cluster = True, "", "demo"
        self.builders, self.images, self.templates = {}, {}, []
        self.snapshots, self.protected = [], True

    def get_paginator(self, operation):
        self.operation = operation
        return self

    def paginate(self, *, Filters=(), **_):  # noqa: N803  # boto3's names
        if self.operation in {"describe_stack_events", "describe_snapshots"}:
            return [{"StackEvents": [], "Snapshots": self.snapshots}]
        if self.operation == "describe_images":
            return [{"Images": list(self.images.values())}]
        if self.operation == "describe_launch_templates":
            return [{"LaunchTemplates": [item for item, _ in self.templates]}]
        if self.operation == "describe_launch_template_versions":
            return [{"LaunchTemplateVersions": [version for _, version in self.templates]}]
        if {"Name": "tag:toolkit:role", "Values": ["builder"]} in Filters:
            return [{"Reservations": [{"Instances": list(self.builders.values())}]}]
        items = [
            {
                "InstanceId": key,
                "ImageId": f"toolkit-{role}-1",
                "Tags": [
                    {"Key": "toolkit:role", "Value": role},
                    {"Key": "toolkit:cluster", "Value": self.cluster},
                ],
            }
            for key, role in self.instances.items()
        ]
        return [{"Reservations": [{"Instances": items}]}]

    def terminate_instances(self, *, InstanceIds):  # noqa: N803  # boto3's names
        self.actions += InstanceIds
        for key in InstanceIds:
            self.builders.pop(key, None)
            self.instances.pop(key, None)
        if "i-head" in InstanceIds and self.late:
            self.instances[self.late.pop()] = "compute"

    def describe_stacks(self, *, StackName):  # noqa: N803  # boto3's names
        images = "toolkit-images" in StackName
        status = self.images_stack if images else self.status
        if not status:
            raise refusal("ValidationError", f"{StackName} does not exist")
        stack_id = "arn:toolkit-images" if images else "arn:stack"
        protected = self.protected and not images
        stack = {"StackStatus": status, "StackId": stack_id}
        return {"Stacks": [{**stack, "EnableTerminationProtection": protected}]}

    def deregister_image(self, *, ImageId):  # noqa: N803  # boto3's names
        self.images.pop(ImageId)

    def take_image(self, name, builder):
        """Add the image and the builder of a deploy that was killed."""
        self.images[name] = {"ImageId": name, "Name": name, "State": "available"}
        self.images[name]["CreationDate"] = ""
        self.build(name, builder)

    def use_image(self, name, cluster):
        """Add a launch template of a cluster."""
        template = {"LaunchTemplateId": f"lt-{cluster}", "LaunchTemplateName": f"{cluster}.gpu"}
        tags = [{"Key": "toolkit:cluster", "Value": cluster}]
        version = {**template, "LaunchTemplateData": {"ImageId": name}}
        self.templates.append(({**template, "Tags": tags}, version))

    def build(self, name, builder):
        self.builders[builder] = {
            "InstanceId": builder,
            "Tags": [{"Key": "toolkit:image", "Value": name}],
            "LaunchTime": datetime.now(UTC),
        }

    def describe_stack_resources(self, **_):
        return {"StackResources": []}

    def update_termination_protection(self, *, StackName, EnableTerminationProtection):  # noqa: N803
        assert not EnableTerminationProtection
        self.protected = False

    def delete_stack(self, *, StackName):  # noqa: N803  # boto3's names
        if "toolkit-images" in StackName:
            self.actions.append("images stack")
            self.images_stack = ""
            return
        assert not self.protected, "CloudFormation refuses"
        self.actions.append("stack")
        self.status = "DELETE_IN_PROGRESS"
        final = "" if self.deletes else "DELETE_FAILED"
        self.clock.at(4, lambda: setattr(self, "status", final))

    def head_bucket(self, **_):
        raise refusal("404")


@pytest.fixture
def cloud(monkeypatch):
    clock = Clock()
    cloud = Cloud(clock)
    cloud.resources = []
    monkeypatch.setattr(module, "find_resources", lambda *_: tuple(cloud.resources))
    monkeypatch.setattr(
        module, "delete_detached", lambda _, item: cloud.actions.append(f"removed {item.id}")
    )
    clients = FakeClients(ec2=cloud, cloudformation=cloud, s3=cloud)
    cloud.destroyer = Destroyer(example(), clients, Report(), sleep=clock.sleep, clock=clock)
    return cloud


def test_the_head_node_is_terminated_first_and_instances_are_listed_again(cloud):
    """Terminate the head node first, because it replaces terminated instances.

    Afterwards the instances are listed again.
    """
    cloud.destroyer.destroy(with_images=False)
    assert cloud.actions == ["i-head", "i-node", "i-late", "stack"]


def test_destroy_may_be_repeated(cloud):
    """Do nothing in a step that is done already."""
    cloud.instances, cloud.status, cloud.late = {}, "", []
    assert cloud.destroyer.inventory(with_images=False).is_empty
    cloud.destroyer.destroy(with_images=False)
    assert cloud.actions == []


def test_a_stack_that_is_not_deleted_is_an_error(cloud):
    """Exit with code 1 and name the failed resource."""
    cloud.deletes = False
    with pytest.raises(DestroyIncomplete, match="DELETE_FAILED"):
        cloud.destroyer.destroy(with_images=False)


def test_leftover_resources_are_deleted_or_named(cloud):
    """Delete detached disks, and list other leftover resources for a person."""
    cloud.resources = [TaggedResource("volume", "vol-1")]
    with pytest.raises(DestroyIncomplete, match="volume vol-1"):
        cloud.destroyer.destroy(with_images=False)
    assert "removed vol-1" in cloud.actions


def test_the_inventory_names_stack_and_instances(cloud):
    """List stack and instances for --dry-run, or if --yes is missing."""
    text = cloud.destroyer.inventory(with_images=False).text()
    assert "stack (CREATE_COMPLETE)" in text
    assert "2 instances" in text


def test_the_inventory_says_what_is_lost_with_each_resource(cloud):
    """Name the lost data in the question of destroy."""
    cloud.resources = [
        TaggedResource("data volume", "vol-1"),
        TaggedResource("volume", "vol-2"),
        TaggedResource("filesystem", "fs-1"),
    ]
    text = cloud.destroyer.inventory(with_images=False).text()
    assert "- data volume vol-1: Slurm's queue and state, accounting, runs of MLflow" in text
    assert "a snapshot of it stays" in text
    assert "- filesystem fs-1: homes, datasets, checkpoints" in text
    assert "vol-2" not in text, "a root disk goes with its instance"


def test_snapshots_are_named_with_what_to_do_about_them(cloud):
    """List them oldest first."""
    for day, name in ((9, "snap-late"), (3, "snap-early")):
        at = datetime(2026, 11, day, 12, 30, tzinfo=UTC)
        cloud.snapshots.append({"SnapshotId": name, "VolumeId": "vol-1", "StartTime": at})
    early, late = map(str, cloud.destroyer.snapshots())
    assert early.startswith("snapshot snap-early of the head node's data volume (2026-11-03 12:30")
    assert "head.data_snapshot restores it" in early
    assert "`aws ec2 delete-snapshot --snapshot-id snap-late` deletes it" in late


def test_destroy_terminates_abandoned_builders_only(cloud):
    """Keep builders that a deploy of another cluster waits for.

    Builders have no cluster's tag.
    """
    cloud.instances, cloud.status, cloud.late = {}, "", []
    cloud.take_image("toolkit-head-1", "i-left")
    cloud.build("toolkit-head-2", "i-work")
    inventory = cloud.destroyer.inventory(with_images=False)
    assert "image builder i-left" in inventory.text()
    assert not inventory.is_empty
    cloud.destroyer.destroy(with_images=False)
    assert (cloud.actions, list(cloud.builders)) == (["i-left"], ["i-work"])


def test_destroy_with_images_terminates_every_builder(cloud):
    """Terminate all builders, because their images are not wanted any more."""
    cloud.instances, cloud.status, cloud.late = {}, "", []
    cloud.build("toolkit-head-2", "i-work")
    cloud.destroyer.destroy(with_images=True)
    assert cloud.builders == {}


def test_the_images_stack_is_deleted_with_the_images(cloud):
    """Delete the images stack of a failed build or an interrupted destroy."""
    cloud.instances, cloud.status, cloud.late = {}, "", []
    cloud.images_stack = "DELETE_FAILED"
    assert cloud.destroyer.inventory(with_images=False).is_empty
    inventory = cloud.destroyer.inventory(with_images=True)
    assert inventory.text() == "- stack toolkit-images (DELETE_FAILED)"
    assert not inventory.is_empty
    cloud.destroyer.destroy(with_images=True)
    assert cloud.actions == ["images stack"]
    assert cloud.destroyer.inventory(with_images=True).is_empty


def test_kept_images_are_named_with_the_command_that_deletes_them(cloud):
    """Name the kept images, because they cost a little each month.

    Images belong to no cluster.
    """
    cloud.instances, cloud.status, cloud.late = {}, "", []
    cloud.take_image("toolkit-head-1", "i-left")
    cloud.builders = {}
    inventory = cloud.destroyer.inventory(with_images=False)
    assert inventory.is_empty
    assert "toolkit-head-1" in inventory.kept_images_text
    assert "destroy --images" in inventory.kept_images_text
    assert cloud.destroyer.inventory(with_images=True).kept_images_text == ""


def test_images_in_the_launch_templates_of_other_clusters_stay(cloud):
    """Keep what another cluster needs, and name that cluster."""
    cloud.instances, cloud.status, cloud.late = {}, "", []
    cloud.images_stack = "CREATE_COMPLETE"
    for name in ("toolkit-compute-1", "toolkit-compute-2"):
        cloud.take_image(name, "i-left")
    cloud.build("toolkit-head-2", "i-work")
    cloud.use_image("toolkit-compute-1", "other")
    cloud.use_image("toolkit-compute-2", "demo")
    inventory = cloud.destroyer.inventory(with_images=True)
    assert "image toolkit-compute-2" in inventory.text()
    assert "toolkit-compute-1" not in inventory.text()
    assert inventory.kept_images_text == (
        "image toolkit-compute-1 stays: launch template other.gpu of cluster other uses it"
    )
    cloud.destroyer.destroy(with_images=True)
    assert list(cloud.images) == ["toolkit-compute-1"]
    assert list(cloud.builders) == ["i-work"]
    assert cloud.images_stack == "CREATE_COMPLETE"


def test_the_image_of_another_clusters_instance_stays(cloud):
    """Keep the image of a head node: its replacement starts from it."""
    cloud.instances, cloud.cluster, cloud.status = {"i-head": "head"}, "other", ""
    cloud.take_image("toolkit-head-1", "i-left")
    assert cloud.destroyer.inventory(with_images=True).kept_images_text == (
        "image toolkit-head-1 stays: instance i-head of cluster other uses it"
    )
