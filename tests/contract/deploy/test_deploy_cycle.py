"""Deploy, change and destroy a cluster through the local cloud's AWS API."""

import json
import time
from decimal import Decimal

import pytest
from botocore.exceptions import ClientError

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.deploy import head_volume, names
from toolkit.deploy.tagged_resources import find_resources
from toolkit.local.aws.images import Image, _row
from toolkit.prices import Catalogue, imports

pytestmark = LEAVES_A_CLOUD


def toolkit(config, *words):
    return cli.run([*words, "--config", str(config.path)])


def lost_account(slurmdbd):
    """Remove a user that cluster.yaml declares from slurmdbd."""
    del slurmdbd.members["vision", "ada"], slurmdbd.defaults["ada"]


def test_a_cluster_is_deployed_changed_applied_and_destroyed(config, capsys):
    """Run each command of a cluster's life, and read its output.

    The commands are deploy, status, plan, a second deploy, a changed apply, and destroy.
    """
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    assert "cluster demo is healthy" in capsys.readouterr().out

    assert toolkit(config, "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert status["healthy"]
    assert status["instances"] == {"head": 1}
    assert status["nodes"] == {"idle+powered_down": 1}

    lost_account(config.actor.driver.slurmdbd)
    assert toolkit(config, "status", "--json") == 1
    status = json.loads(capsys.readouterr().out)
    assert status["missing_accounts"] == ["user ada to account vision"]
    assert "`toolkit accounts apply`" in status["reasons"][0]
    assert toolkit(config, "accounts", "apply") == 0
    assert toolkit(config, "status") == 0
    assert capsys.readouterr().out.endswith("healthy\n")

    assert toolkit(config, "plan") == 0
    assert capsys.readouterr().out == "no changes\n`toolkit deploy` would change nothing\n"
    assert toolkit(config, "deploy") == 0
    assert "no changes" in capsys.readouterr().out

    config.edit(f"suspend_time: {config.config.slurm.suspend_time}", "suspend_time: 60")
    assert toolkit(config, "plan") == 2, "a change, as terraform's -detailed-exitcode"
    output = capsys.readouterr().out
    assert "new settings" in output
    assert output.endswith("`toolkit deploy` would set up the head node\n")
    assert toolkit(config, "apply", "--dry-run") == 0
    assert capsys.readouterr().out == "~ rendered/burst.json\n~ rendered/slurm.conf\n"
    assert toolkit(config, "apply") == 0
    assert capsys.readouterr().out == "applied\n"
    assert toolkit(config, "apply", "--dry-run") == 0
    assert capsys.readouterr().out == "no changes\n"
    assert any("/opt/slurm-toolkit/boot" in text for text in config.actor.driver.ran)

    import_price(config, Decimal("7.25"))
    assert toolkit(config, "apply", "--dry-run") == 0
    assert "~ rendered/burst.json\n" in capsys.readouterr().out
    imports_of(config).unlink()

    config.edit("count: 4", "count: 8")
    config.edit("instance_type: m7i.large", "instance_type: m7i.xlarge")
    assert toolkit(config, "deploy", "--dry-run") == 0
    assert "InstanceType: m7i.large → m7i.xlarge" in capsys.readouterr().out

    check_destroy(config, capsys)


def import_price(config, usd):
    """Keep a newer list price of the pool's first type."""
    (pool,) = config.config.pools.values()
    day = int(time.time()) - 86_400
    region, prices = config.config.aws.region, {pool.offerings[0].type: usd}
    imports.write(Catalogue(region, day, prices, {}), imports.folder(config.path), "a test")


def imports_of(config):
    """Return the one file of imported prices."""
    (path,) = imports.folder(config.path).glob("*.json")
    return path


def check_destroy(config, capsys):
    """Destroy the cluster; the question names what is lost, a snapshot stays."""
    cloudformation = config.actor.clients.client("cloudformation")
    with pytest.raises(ClientError, match="TerminationProtection is enabled"):
        cloudformation.delete_stack(StackName=names.stack(config.config))
    assert toolkit(config, "destroy") == 3
    question = capsys.readouterr().err
    for loss in ("- data volume vol-", "- filesystem fs-", "- the bucket: "):
        assert loss in question
    assert "accounting, runs of MLflow and Optuna; a snapshot of it stays" in question
    assert toolkit(config, "destroy", "--dry-run") == 0
    assert "images that are kept: toolkit-" in capsys.readouterr().out
    assert toolkit(config, "destroy", "--yes", "--images") == 0, capsys.readouterr().err
    assert "of the head node's data volume" in capsys.readouterr().out
    (snapshot,) = head_volume.snapshots(config.actor.clients.client("ec2"), config.config)
    assert find_resources(config.actor.clients, config.config) == ()
    assert toolkit(config, "destroy", "--yes") == 0
    output = capsys.readouterr().out
    assert "nothing to destroy" in output
    assert str(snapshot) in output


def test_a_plan_before_the_first_deploy_says_what_deploy_would_do(config, capsys):
    """Exit with code 2 for changes, and with code 1 for errors."""
    assert toolkit(config, "plan") == 2
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("`toolkit deploy` would build 2 images, create the stack (")
    assert last.endswith("resources) and set up the head node")
    assert toolkit(config, "plan", "--json") == 2
    assert json.loads(capsys.readouterr().out)["deploy"] == last

    assert toolkit(config, "plan", "--no-such-option") == 1
    config.edit("count: 4", "count: none")
    assert toolkit(config, "plan") == 1, "an invalid file is no change"
    config.edit("count: none", "count: 4")
    config.edit(config.config.aws.endpoint_url, "http://127.0.0.1:1")
    assert toolkit(config, "plan") == 1, "neither is an endpoint that does not answer"


def test_a_dry_run_of_a_first_deploy_leaves_no_stack(config, capsys):
    """Deploy with --dry-run, and find no stack that CloudFormation reviews."""
    assert toolkit(config, "deploy", "--dry-run") == 0
    output = capsys.readouterr().out
    assert "image toolkit-head-" in output
    assert "+ Head  AWS::EC2::Instance" in output
    stacks = config.actor.clients.client("cloudformation").list_stacks(
        StackStatusFilter=["REVIEW_IN_PROGRESS", "CREATE_COMPLETE"]
    )
    assert stacks["StackSummaries"] == []
    assert toolkit(config, "status") == 1


def test_destroy_keeps_the_images_that_another_cluster_launches_from(config, capsys):
    """Deregister only the images that nothing outside the cluster uses.

    The launch template of another cluster could start no instance from then on.
    """
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    ec2 = config.actor.clients.client("ec2")
    ids = {item["Name"]: item["ImageId"] for item in own_images(ec2)}
    (compute,) = (name for name in ids if name.startswith("toolkit-compute-"))
    ec2.create_launch_template(
        LaunchTemplateName="other.gpu",
        LaunchTemplateData={"ImageId": ids[compute]},
        TagSpecifications=[
            {
                "ResourceType": "launch-template",
                "Tags": [{"Key": "toolkit:cluster", "Value": "other"}],
            }
        ],
    )
    reason = f"image {compute} stays: launch template other.gpu of cluster other uses it"
    assert toolkit(config, "destroy", "--images", "--dry-run") == 0
    assert reason in capsys.readouterr().out
    assert toolkit(config, "destroy", "--images", "--yes") == 0, capsys.readouterr().err
    assert reason in capsys.readouterr().out
    assert [item["Name"] for item in own_images(ec2)] == [compute]
    stacks = config.actor.clients.client("cloudformation").describe_stacks()["Stacks"]
    kept = {"toolkit-images", "toolkit-demo-backups"}
    assert {stack["StackName"] for stack in stacks} == kept, "other builds there"

    ec2.delete_launch_template(LaunchTemplateName="other.gpu")
    assert toolkit(config, "destroy", "--images", "--backups", "--yes") == 0, (
        capsys.readouterr().err
    )
    assert own_images(ec2) == []
    assert config.actor.clients.client("cloudformation").describe_stacks()["Stacks"] == []


def own_images(ec2):
    return ec2.describe_images(Owners=["self"])["Images"]


def test_a_plan_stays_the_same_when_a_newer_base_image_is_published(config, capsys):
    """Pin the base image in cluster.lock.yaml at the first deploy.

    `image check` tells of a newer one, and `image update` takes it.
    """
    config.edit('owner: "136693071363", name: "debian-13-amd64-*"', 'owner: self, name: "ours-*"')
    config.edit("\nprofile: local #", "\nprofile: aws #")
    config.edit('version: "24.11"', 'version: "25.05"')
    ec2 = config.actor.clients.client("ec2")
    first = publish(config, "ours-1", created=1_700_000_000.0)
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    lock = config.path.with_name("cluster.lock.yaml")
    assert first in lock.read_text()
    assert toolkit(config, "image", "check") == 0

    second = publish(config, "ours-2", created=1_700_086_400.0)
    capsys.readouterr()
    assert toolkit(config, "plan") == 0, "the newer image is not in the plan"
    assert capsys.readouterr().out.startswith("no changes\n")
    assert toolkit(config, "image", "check") == 2
    assert second in capsys.readouterr().out
    assert first in lock.read_text()

    assert toolkit(config, "image", "update") == 0
    assert second in lock.read_text()
    assert toolkit(config, "plan") == 2
    assert "would build 2 images" in capsys.readouterr().out

    ec2.deregister_image(ImageId=second)
    assert toolkit(config, "plan") == 1
    assert "`toolkit image update`" in capsys.readouterr().err


def publish(config, name, *, created):
    """Add a base image that was made at that time."""
    clients = config.actor.clients
    image = Image(
        id=f"ami-{int(created):017x}",
        name=name,
        owner=clients.account,
        region=config.config.aws.region,
        created=created,
    )
    backend = config.actor.cloud.tables.ec2(config.config.aws.region)
    backend.amis[image.id] = _row(backend, image, "available")
    return image.id


def test_a_failed_image_build_ends_the_deploy_and_terminates_its_builders(config, capsys):
    """Fail a task of the image build.

    No instance is left, and the error names the failed task. destroy removes the rest.
    """
    config.actor.failing_task = "Install slurmd"
    assert toolkit(config, "deploy") == 1
    assert "Install slurmd" in capsys.readouterr().err
    assert config.actor.running() == []

    assert toolkit(config, "destroy", "--images") == 3, "the builds' stack is left"
    assert toolkit(config, "destroy", "--images", "--yes") == 0, capsys.readouterr().err
    cloudformation = config.actor.clients.client("cloudformation")
    assert cloudformation.describe_stacks()["Stacks"] == []


def test_a_status_without_an_endpoint_names_toolkit_local_up(config, capsys):
    """Expect exit code 4, with the command that starts the local cloud."""
    config.edit(config.config.aws.endpoint_url, "http://127.0.0.1:1")
    assert toolkit(config, "status") == 4
    assert "toolkit local up" in capsys.readouterr().err
