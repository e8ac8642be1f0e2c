"""Deploys after the head instance was lost, or must be a new one, through the local cloud's API."""

import json

import pytest

from slurmplugins.cloud import tags
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.commands.exit_codes import DIFFERS, FAILED, SAME
from toolkit.deploy import changes, names
from toolkit.deploy.head import find_head
from toolkit.deploy.storage import Bucket
from toolkit.errors import StackFailed

pytestmark = LEAVES_A_CLOUD


@pytest.fixture
def deployed(config, capsys):
    """A deployed cluster."""
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    capsys.readouterr()
    return config


def toolkit(config, *words):
    return cli.run([*words, "--config", str(config.path)])


def head(config):
    return find_head(config.actor.clients, config.config)


def cloudformation(config):
    return config.actor.clients.client("cloudformation")


def stack_state(config):
    stacks = cloudformation(config).describe_stacks(StackName=names.stack(config.config))["Stacks"]
    return stacks[0]["StackStatus"]


def data_volumes(config):
    """Return the data volumes of the cluster, as EC2 lists them."""
    filters = [{"Name": "tag:toolkit:role", "Values": ["head-data"]}]
    return config.actor.clients.client("ec2").describe_volumes(Filters=filters)["Volumes"]


def holder(volume):
    """Return the instance that a volume is attached to."""
    (attachment,) = volume["Attachments"]
    return attachment["InstanceId"]


def terminate_head(config):
    old = head(config)
    config.actor.clients.client("ec2").terminate_instances(InstanceIds=[old["InstanceId"]])
    return old


def failed_events(config):
    events = cloudformation(config).describe_stack_events(StackName=names.stack(config.config))
    return [e for e in events["StackEvents"] if e["ResourceStatus"].endswith("FAILED")]


def stack_states(config):
    """Return all states that the stack had."""
    events = cloudformation(config).describe_stack_events(StackName=names.stack(config.config))
    name = names.stack(config.config)
    return {e["ResourceStatus"] for e in events["StackEvents"] if e["LogicalResourceId"] == name}


def test_a_head_that_was_terminated_is_noticed_and_made_again(deployed, capsys):
    """Terminate the head; deploy makes another with the data volume."""
    (volume,) = data_volumes(deployed)
    old = terminate_head(deployed)
    assert holder(volume) == old["InstanceId"]
    assert toolkit(deployed, "plan") == DIFFERS
    output = capsys.readouterr().out
    assert "± Head" in output
    assert f"its instance {old['InstanceId']} was terminated" in output
    assert "its data volume goes to the new instance: Slurm's queue and state" in output
    assert toolkit(deployed, "deploy") == 0, capsys.readouterr().err
    new = head(deployed)
    assert new["InstanceId"] != old["InstanceId"]
    assert new["PrivateIpAddress"] == str(deployed.config.network.head_address)
    assert "UPDATE_ROLLBACK_COMPLETE" not in stack_states(deployed)
    (kept,) = data_volumes(deployed)
    assert (kept["VolumeId"], holder(kept)) == (volume["VolumeId"], new["InstanceId"])
    capsys.readouterr()
    assert toolkit(deployed, "plan") == SAME
    assert capsys.readouterr().out.startswith("no changes\n")


def test_a_new_root_disk_is_a_new_head_and_the_data_volume_stays(deployed, capsys):
    """Enlarge the head's disk: the new head has the old address."""
    old = head(deployed)
    deployed.edit("root_gib: 50", "root_gib: 77")
    assert toolkit(deployed, "plan") == DIFFERS
    output = capsys.readouterr().out
    assert "BlockDeviceMappings[0].Ebs.VolumeSize" in output
    assert "its root disk is lost" in output
    assert "HeadDataAttachment" not in output, "it goes and comes with the instance"
    (volume,) = data_volumes(deployed)
    assert toolkit(deployed, "deploy") == 3
    assert head(deployed)["InstanceId"] == old["InstanceId"]
    assert toolkit(deployed, "deploy", "--yes") == 0, capsys.readouterr().err
    new = head(deployed)
    assert new["InstanceId"] != old["InstanceId"]
    assert new["PrivateIpAddress"] == old["PrivateIpAddress"]
    disks = {disk["DeviceName"]: disk["Ebs"]["VolumeId"] for disk in new["BlockDeviceMappings"]}
    assert disks.pop("/dev/sdf") == volume["VolumeId"]
    (root,) = disks.values()
    volumes = deployed.actor.clients.client("ec2").describe_volumes(VolumeIds=[root])
    assert volumes["Volumes"][0]["Size"] == 77
    assert stack_state(deployed) == "UPDATE_COMPLETE"
    assert "UPDATE_ROLLBACK_COMPLETE" not in stack_states(deployed)


def test_a_head_is_replaced_on_request(deployed, capsys):
    old = head(deployed)
    assert toolkit(deployed, "deploy", "--replace-head") == 3
    assert "its root disk is lost" in capsys.readouterr().err
    (volume,) = data_volumes(deployed)
    assert toolkit(deployed, "deploy", "--replace-head", "--yes") == 0, capsys.readouterr().err
    assert head(deployed)["InstanceId"] != old["InstanceId"]
    (kept,) = data_volumes(deployed)
    assert (kept["VolumeId"], holder(kept)) == (volume["VolumeId"], head(deployed)["InstanceId"])
    assert not failed_events(deployed)


def test_a_first_update_that_fails_leaves_the_old_head_running(deployed, capsys, monkeypatch):
    """Fail the first update; the head was stopped, and starts again."""
    old = head(deployed)

    def failing(_stack, _plan, _phase):
        assert head(deployed)["State"]["Name"] == "stopped", "EC2 detaches no mounted volume"
        raise StackFailed("the update was undone")

    with monkeypatch.context() as patch:
        patch.setattr(changes.StackChanges, "execute", failing)
        assert toolkit(deployed, "deploy", "--replace-head", "--yes") == FAILED
    assert "the update was undone" in capsys.readouterr().err
    new = head(deployed)
    assert new["InstanceId"] == old["InstanceId"]
    assert new["State"]["Name"] in ("pending", "running")


def test_another_snapshot_is_another_volume_with_a_new_head(deployed, capsys):
    """Restore a snapshot in a new volume; the old one leaves another."""
    ec2, (old,) = deployed.actor.clients.client("ec2"), data_volumes(deployed)
    snapshot = ec2.create_snapshot(VolumeId=old["VolumeId"])["SnapshotId"]
    deployed.edit("data_gib: 8", f"data_gib: 8, data_snapshot: {snapshot}")
    assert toolkit(deployed, "plan") == DIFFERS
    output = capsys.readouterr().out
    assert "its data volume is replaced; a snapshot of the old one stays" in output
    assert toolkit(deployed, "deploy") == 3
    assert toolkit(deployed, "deploy", "--yes") == 0, capsys.readouterr().err
    (new,) = data_volumes(deployed)
    assert (new["SnapshotId"], holder(new)) == (snapshot, head(deployed)["InstanceId"])
    kept = ec2.describe_snapshots(Filters=[{"Name": "tag:toolkit:cluster", "Values": ["demo"]}])
    assert [item["VolumeId"] for item in kept["Snapshots"]] == [old["VolumeId"]]
    assert toolkit(deployed, "plan") == SAME


def test_a_larger_data_volume_is_a_change_in_place(deployed, capsys):
    """Grow the volume, and run the playbook: it grows the filesystem."""
    (old,) = data_volumes(deployed)
    ran = deployed.actor.driver.ran
    ran.clear()
    deployed.edit("data_gib: 8", "data_gib: 12")
    assert toolkit(deployed, "deploy") == 0, capsys.readouterr().err
    (new,) = data_volumes(deployed)
    assert (new["VolumeId"], new["Size"], holder(new)) == (old["VolumeId"], 12, holder(old))
    assert any("/opt/slurm-toolkit/boot" in text for text in ran)
    assert stack_state(deployed) == "UPDATE_COMPLETE"


def test_status_tells_of_a_data_volume_that_is_nearly_full(deployed, capsys):
    assert toolkit(deployed, "status") == 0
    assert "head data  60 % of space, 90 % of inodes free" in capsys.readouterr().out
    volume = {"space": 0.02, "inodes": 0.9, "bytes": 2**28}
    deployed.actor.driver.data_volume = volume
    assert toolkit(deployed, "status", "--json") == 1
    status = json.loads(capsys.readouterr().out)
    assert status["data_volume"] == volume
    (reason,) = status["reasons"]
    assert reason.startswith("/srv/head has 2.0 % of its space free, less than 5 %")


def test_a_deploy_that_died_between_its_two_updates_is_finished_by_the_next(
    deployed, capsys, monkeypatch
):
    """Die after the first update; the next deploy needs no --yes."""
    execute, calls = changes.StackChanges.execute, []

    def dying(stack, plan, phase):
        calls.append(plan)
        if len(calls) > 1:
            raise KeyboardInterrupt
        execute(stack, plan, phase)

    with monkeypatch.context() as patch:
        patch.setattr(changes.StackChanges, "execute", dying)
        assert toolkit(deployed, "deploy", "--replace-head", "--yes") == cli.INTERRUPTED
    assert head(deployed) is None
    capsys.readouterr()
    assert toolkit(deployed, "plan") == DIFFERS
    assert "+ Head  AWS::EC2::Instance" in capsys.readouterr().out
    assert toolkit(deployed, "deploy") == 0, capsys.readouterr().err
    assert head(deployed)["PrivateIpAddress"] == str(deployed.config.network.head_address)


def test_another_type_of_head_is_a_restart_and_needs_no_yes(deployed, capsys):
    """Change the head's type: the instance stays, with its disk."""
    old = head(deployed)
    deployed.edit("instance_type: m7i.large", "instance_type: m7i.xlarge")
    assert toolkit(deployed, "plan") == DIFFERS
    assert "the instance stops and starts" in capsys.readouterr().out
    assert toolkit(deployed, "deploy") == 0, capsys.readouterr().err
    new = head(deployed)
    assert (new["InstanceId"], new["InstanceType"]) == (old["InstanceId"], "m7i.xlarge")


def broken_stack(config, name):
    """Leave a stack in ROLLBACK_COMPLETE, as a first deploy that failed does."""
    cloudformation(config).create_stack(
        StackName=name,
        TemplateBody=json.dumps({"Resources": {"X": {"Type": "AWS::Nope::Thing"}}}),
    )
    for _ in range(1000):
        if stack_state(config) == "ROLLBACK_COMPLETE":
            return
    raise AssertionError(stack_state(config))


def delete_images_stack(config):
    """Delete the stack of image builds, and its bucket."""
    stacks, clients = cloudformation(config), config.actor.clients
    Bucket(clients.client("s3"), names.images_bucket(config.config, clients.account)).empty()
    stacks.delete_stack(StackName=names.IMAGES_STACK)
    stacks.get_waiter("stack_delete_complete").wait(
        StackName=names.IMAGES_STACK, WaiterConfig={"Delay": 1}
    )


def test_a_plan_changes_nothing(config, capsys, monkeypatch):
    """Plan over a failed stack, then with too large a template."""
    broken_stack(config, names.stack(config.config))
    assert toolkit(config, "plan") == DIFFERS
    output = capsys.readouterr().out
    assert "is ROLLBACK_COMPLETE: deploy deletes it first" in output
    assert "+ Head  AWS::EC2::Instance" in output
    assert stack_state(config) == "ROLLBACK_COMPLETE"

    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    monkeypatch.setattr(changes, "MAX_BODY", 1000)
    delete_images_stack(config)
    config.edit("count: 4", "count: 8")
    capsys.readouterr()
    assert toolkit(config, "plan") == DIFFERS
    stacks = cloudformation(config).describe_stacks()["Stacks"]
    kept = {names.stack(config.config), names.backups_stack(config.config)}
    assert {stack["StackName"] for stack in stacks} == kept


def test_a_failed_rollback_is_explained_with_the_command_that_ends_it(deployed, capsys):
    """Fail an update by hand; plan and deploy say what helps."""
    stack = names.stack(deployed.config)
    text = cloudformation(deployed).get_template(StackName=stack)["TemplateBody"]
    body = text if isinstance(text, str) else json.dumps(text)
    terminate_head(deployed)
    change_set = cloudformation(deployed).create_change_set(
        StackName=stack,
        ChangeSetName="byhand",
        ChangeSetType="UPDATE",
        Capabilities=["CAPABILITY_IAM"],
        TemplateBody=body.replace("m7i.large", "m7i.xlarge"),
    )
    cloudformation(deployed).execute_change_set(ChangeSetName=change_set["Id"])
    for _ in range(2000):
        if stack_state(deployed) == "UPDATE_ROLLBACK_FAILED":
            break
    for command in ("plan", "deploy"):
        assert toolkit(deployed, command) == FAILED
        error = capsys.readouterr().err
        assert f"stack {stack} is UPDATE_ROLLBACK_FAILED" in error
        assert "Head: " in error
        assert "continue-update-rollback" in error
        assert "--resources-to-skip Head" in error
    cloudformation(deployed).continue_update_rollback(StackName=stack, ResourcesToSkip=["Head"])
    assert toolkit(deployed, "deploy") == 0, capsys.readouterr().err
    assert tags.ROLE in {tag["Key"] for tag in head(deployed)["Tags"]}
