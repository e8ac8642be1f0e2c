"""`toolkit preflight`, and its part in plan and deploy, against the local cloud's account."""

import json

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.local.client import Client

pytestmark = LEAVES_A_CLOUD
SPOT_G, DEMAND_G, STANDARD = "L-3819A6DF", "L-DB2E81BA", "L-1216C47A"
RESERVED = "{type: g5.xlarge, capacity: on-demand, zone: us-east-1a, reservation: %s}"
ON_DEMAND = "{type: g5.xlarge, capacity: on-demand}"


def toolkit(config, *words):
    return cli.run([*words, "--config", str(config.path)])


def findings(config, capsys, exit_code):
    """Return (severity, slug, path) of each finding, by the command's JSON."""
    capsys.readouterr()
    assert toolkit(config, "preflight", "--json") == exit_code
    answer = json.loads(capsys.readouterr().out)
    assert answer["ready"] == (exit_code == 0)
    return {(item["severity"], item["slug"], item["path"]) for item in answer["findings"]}


def line_of(config, text):
    lines = config.path.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def quotas(config):
    return config.actor.cloud.account.quotas


def forbid(config, action, code="UnauthorizedOperation"):
    """Let the account's owner lack the right for an action."""
    body = {"action": action, "code": code, "message": "no"}
    Client(config.actor.cloud.options.port).post("throttle", body)


def test_the_example_fits_the_local_account(config, capsys):
    """Say so in one sentence, and name the account and the caller."""
    assert findings(config, capsys, 0) == set()
    assert toolkit(config, "preflight") == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{config.path}: account 123456789012 is ready, asked by arn:aws:")


def test_every_problem_is_reported_at_once_with_its_line(config, capsys):
    """Change zone, types, efa and shape, and lower a quota."""
    config.edit("us-east-1b: 10.42.2.0/24", "us-east-1e: 10.42.2.0/24")
    config.edit("head: {instance_type: m7i.large", "head: {instance_type: m7i.huge")
    config.edit("memory_gib: 16", "memory_gib: 17")
    quotas(config)[DEMAND_G] = 8.0
    demand, second = "pools.gpu.offerings[1].type", "pools.gpu.offerings[0].type"
    assert findings(config, capsys, 1) == {
        ("error", "no-such-type", "head.instance_type"),
        ("error", "type-below-shape", demand),
        ("error", "type-below-shape", second),
        ("warning", "type-not-in-zone", demand),
        ("warning", "type-not-in-zone", second),
        ("warning", "quota-below-pools", "pools.gpu.count"),
    }
    assert toolkit(config, "preflight") == 1
    lines = capsys.readouterr().out.splitlines()
    line = line_of(config, "instance_type: m7i.huge")
    assert f"error: line {line}: head.instance_type: us-east-1 has no" in lines[0]
    assert lines[-1].startswith(f"{config.path}: account 123456789012 is not ready")


def test_deploy_stops_before_its_first_change(config, capsys):
    """Report every problem; make nothing; go on with --skip-preflight, which warns."""
    quotas(config)[STANDARD] = 1.0
    assert toolkit(config, "deploy") == 1
    error = capsys.readouterr().err
    assert "2 problems in the account" in error
    assert "[account-not-ready]" in error
    assert "--skip-preflight" in error
    clients = config.actor.clients
    assert clients.client("cloudformation").describe_stacks()["Stacks"] == []
    assert clients.client("s3").list_buckets()["Buckets"] == []

    assert toolkit(config, "deploy", "--skip-preflight") == 0, capsys.readouterr().err
    assert "warning: preflight skipped" in capsys.readouterr().err


def test_plan_shows_its_changes_and_then_the_problems(config, capsys):
    """Exit with 1, because deploy would fail; warnings alone change nothing."""
    quotas(config)[SPOT_G] = 3.0
    assert toolkit(config, "plan") == 2
    captured = capsys.readouterr()
    assert "warning: line" in captured.err
    assert "quota-below-one-instance" in captured.err

    quotas(config)[DEMAND_G] = 3.0
    assert toolkit(config, "plan") == 1
    captured = capsys.readouterr()
    assert "`toolkit deploy` would build 2 images" in captured.out
    assert "[account-not-ready]" in captured.err
    assert toolkit(config, "plan", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert {item["slug"] for item in answer["preflight"]["findings"]} == {
        "quota-below-one-instance",
        "quota-below-pools",
    }
    assert toolkit(config, "deploy", "--dry-run") == 1
    assert toolkit(config, "plan", "--skip-preflight") == 2
    capsys.readouterr()
    assert toolkit(config, "plan", "--json", "--skip-preflight") == 2
    assert json.loads(capsys.readouterr().out)["preflight"] is None


@pytest.mark.parametrize(
    ("action", "code", "right"),
    [
        ("DescribeInstanceTypes", "UnauthorizedOperation", "ec2:DescribeInstanceTypes"),
        (
            "DescribeInstanceTypeOfferings",
            "UnauthorizedOperation",
            "ec2:DescribeInstanceTypeOfferings",
        ),
        ("DescribeAvailabilityZones", "UnauthorizedOperation", "ec2:DescribeAvailabilityZones"),
        ("GetServiceQuota", "AccessDeniedException", "servicequotas:GetServiceQuota"),
        ("GetEbsDefaultKmsKeyId", "UnauthorizedOperation", "ec2:GetEbsDefaultKmsKeyId"),
        ("RunInstances", "UnauthorizedOperation", "ec2:RunInstances"),
    ],
)
def test_a_right_that_the_caller_lacks_is_a_note(config, capsys, action, code, right):
    """Name the right, and report the account as ready."""
    forbid(config, action, code)
    assert toolkit(config, "preflight") == 0
    note, sentence = capsys.readouterr().out.splitlines()
    assert note.startswith("note: not checked: ")
    assert note.endswith(f"the caller lacks {right} [not-checked]")
    assert "is ready" in sentence


def test_a_question_that_aws_refuses_otherwise_is_a_note(config, capsys):
    """Say what AWS said."""
    forbid(config, "GetServiceQuota", "ServiceException")
    assert findings(config, capsys, 0) == {("note", "not-checked", "")}


def test_a_reservation_is_looked_up(config, capsys):
    """Find none, then one of another zone, then the right one."""
    config.edit(ON_DEMAND, RESERVED % "cr-0123456789abcdef0")
    place = "pools.gpu.offerings[1].reservation"
    assert findings(config, capsys, 1) == {("error", "no-such-reservation", place)}
    ec2 = config.actor.clients.client("ec2")

    def reserve(zone):
        return ec2.create_capacity_reservation(
            InstanceType="g5.xlarge",
            InstancePlatform="Linux/UNIX",
            AvailabilityZone=zone,
            InstanceCount=4,
        )["CapacityReservation"]["CapacityReservationId"]

    other, right = reserve("us-east-1b"), reserve("us-east-1a")
    config.edit("cr-0123456789abcdef0", other)
    assert findings(config, capsys, 1) == {("error", "reservation-mismatch", place)}
    config.edit(other, right)
    assert findings(config, capsys, 0) == set()
    ec2.cancel_capacity_reservation(CapacityReservationId=right)
    assert findings(config, capsys, 1) == {("error", "reservation-over", place)}
    forbid(config, "DescribeCapacityReservations")
    assert findings(config, capsys, 0) == {("note", "not-checked", "")}


def test_a_customers_key_for_disks_is_a_warning(config, capsys):
    """Name the key, also where its owner can't be read."""
    clients = config.actor.clients
    key = clients.client("kms").create_key()["KeyMetadata"]["Arn"]
    clients.client("ec2").modify_ebs_default_kms_key_id(KmsKeyId=key)
    assert findings(config, capsys, 0) == {("warning", "customer-key", "")}
    forbid(config, "DescribeKey", "AccessDeniedException")
    assert findings(config, capsys, 0) == {
        ("warning", "customer-key", ""),
        ("note", "not-checked", ""),
    }


def test_a_region_that_is_not_enabled_is_named(config, capsys):
    """Tell it from bad credentials, which AWS's answer does not."""
    text = config.path.read_text().replace("us-east-1", "me-south-1")
    config.path.write_text(text)
    assert findings(config, capsys, 1) == {("error", "region-not-enabled", "aws.region")}
    assert toolkit(config, "plan") == 1
    assert "the account has not enabled me-south-1" in capsys.readouterr().err


def test_credentials_that_aws_does_not_know_end_the_preflight(config, capsys):
    """Exit as every command does."""
    forbid(config, "GetCallerIdentity", "InvalidClientTokenId")
    assert toolkit(config, "preflight") == 4
    assert "[aws-credentials-missing]" in capsys.readouterr().err


def test_a_missing_base_image_is_a_finding_beside_the_others(config, capsys):
    """Report it with the quota.

    The preview alone would stop at the image.
    """
    config.edit('name: "debian-13-amd64-*"', 'name: "no-such-*"')
    quotas(config)[STANDARD] = 1.0
    slug = "quota-below-one-instance"
    assert findings(config, capsys, 1) == {
        ("error", "base-image-missing", "images.base"),
        ("error", slug, "head.instance_type"),
        ("error", slug, "images.builder_type"),
    }
    assert toolkit(config, "plan") == 1
    assert "3 problems in the account" in capsys.readouterr().err


def test_the_launch_templates_of_a_deployed_cluster_are_tried(config, capsys):
    """Launch nothing, and report the code with which EC2 refuses."""
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    ec2 = config.actor.clients.client("ec2")
    before = len(config.actor.cloud.tables.instances)
    assert findings(config, capsys, 0) == set()
    for image in ec2.describe_images(Owners=["self"])["Images"]:
        if image["Name"].startswith("toolkit-compute-"):
            ec2.deregister_image(ImageId=image["ImageId"])
    assert findings(config, capsys, 1) == {
        ("error", "launch-refused", "pools.gpu.offerings[0].type"),
        ("error", "launch-refused", "pools.gpu.offerings[1].type"),
    }
    assert len(config.actor.cloud.tables.instances) == before
