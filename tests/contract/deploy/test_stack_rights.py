"""A deployed stack: which instance is the head, old versions, roles as the account asks."""

from __future__ import annotations

import json

from moto.iam.models import iam_backends

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.deploy import names
from toolkit.deploy.head import find_head
from toolkit.local.options import ACCOUNT

pytestmark = LEAVES_A_CLOUD
BOUNDARY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": ["s3:*", "ssm:*"], "Resource": "*"}],
    }
)


def toolkit(config, *words):
    return cli.run([*words, "--config", str(config.path)])


def test_a_foreign_instance_with_the_heads_tags_gets_no_command(config, capsys):
    """Launch one later than the head, with all of the head's tags."""
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    clients, driver = config.actor.clients, config.actor.driver
    head = find_head(clients, config.config)
    copied = [tag for tag in head["Tags"] if not tag["Key"].startswith("aws:")]
    foreign = clients.client("ec2").run_instances(
        ImageId=head["ImageId"],
        InstanceType="m7i.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": copied}],
    )["Instances"][0]["InstanceId"]
    clients.client("ec2").get_waiter("instance_running").wait(
        InstanceIds=[foreign], WaiterConfig={"Delay": 1}
    )
    driver.reached.clear()
    for words in (("status",), ("apply", "--force"), ("nodes",)):
        assert toolkit(config, *words) == 0, capsys.readouterr().err
    assert driver.reached == {head["InstanceId"]}


def test_what_is_replaced_in_the_bucket_stays_as_a_version_until_destroy(config, capsys):
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    s3 = config.actor.clients.client("s3")
    bucket = names.bucket(config.config, config.actor.clients.account)
    for text in (b"first", b"second"):
        s3.put_object(Bucket=bucket, Key="ledger/one", Body=text)
    s3.delete_object(Bucket=bucket, Key="ledger/one")
    listed = s3.list_object_versions(Bucket=bucket, Prefix="ledger/one")
    assert len(listed["Versions"]) == 2
    assert len(listed["DeleteMarkers"]) == 1
    assert toolkit(config, "destroy", "--yes") == 0, capsys.readouterr().err
    assert bucket not in {item["Name"] for item in s3.list_buckets()["Buckets"]}


def with_iam(config, boundary):
    config.edit(
        "\nnetwork:\n",
        f"\niam:\n  permissions_boundary: {boundary}\n  path: /clusters/\n  name_prefix: hpc-\n"
        "\nnetwork:\n",
    )


def test_a_cluster_has_the_boundary_path_and_names_that_its_account_asks_for(config, capsys):
    backend = iam_backends[ACCOUNT]["aws"]
    boundary = backend.create_policy("", "/", BOUNDARY, "limits", []).arn
    with_iam(config, boundary)
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    roles = {role.name: role for role in backend.roles.values()}
    assert set(roles) == {
        "hpc-demo-us-east-1-head",
        "hpc-demo-us-east-1-mlflow",
        "hpc-demo-us-east-1-compute",
        "hpc-toolkit-images-us-east-1-builder",
    }
    assert {role.permissions_boundary_arn for role in roles.values()} == {boundary}
    assert {role.path for role in roles.values()} == {"/clusters/"}
    assert toolkit(config, "status") == 0, capsys.readouterr().out
    assert toolkit(config, "plan") == 0, "the same settings change nothing"


def test_a_boundary_that_the_account_does_not_have_fails_the_stack_with_its_arn(config, capsys):
    with_iam(config, f"arn:aws:iam::{ACCOUNT}:policy/nobody-made-it")
    assert toolkit(config, "deploy") == 1
    assert "policy/nobody-made-it does not exist" in capsys.readouterr().err
