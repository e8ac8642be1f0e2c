"""Backups that stay when their cluster is destroyed, for a new cluster."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_backups import BackupHead, listed, toolkit
from toolkit.config import load
from toolkit.deploy import names
from toolkit.deploy.tagged_resources import find_resources

pytestmark = LEAVES_A_CLOUD
ENTRY = {"instance_id": "i-1", "launched_at": 1000.0, "ended_at": None, "end_cause": None}


@pytest.fixture
def head(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    capsys.readouterr()
    return BackupHead(config, tmp_path)


def test_destroy_keeps_backups_and_records_for_a_new_cluster(head, capsys):
    """Restore a destroyed cluster's backup into the next one."""
    config = head.config
    clients = config.actor.clients
    s3, bucket = clients.client("s3"), f"{head.bucket}-bak"
    key = "ledger/instances/i-1.json"
    s3.put_object(Bucket=head.bucket, Key=key, Body=json.dumps(ENTRY))
    head.stage.streams.dumps = {"slurm_acct_db": "jobs of demo"}
    assert toolkit(config, "backup", "now") == 0
    (first,) = listed(config, capsys)

    assert toolkit(config, "destroy") == 3
    assert "the instance ledger stays" in capsys.readouterr().err
    assert toolkit(config, "destroy", "--yes") == 0, capsys.readouterr().err
    assert f"kept: 1 backup in s3://{bucket}" in capsys.readouterr().out
    assert find_resources(clients, config.config) == ()
    kept = json.loads(s3.get_object(Bucket=bucket, Key=f"records/{key}")["Body"].read())
    assert kept["ended_at"] == pytest.approx(time.time(), abs=600)
    assert "backups" not in rules(config), "no newer backup will follow"
    assert listed(config, capsys) == [first]

    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    head.renew()
    # What a new head's reconcile writes of an ended instance that EC2 still lists.
    s3.put_object(Bucket=head.bucket, Key=key, Body=json.dumps({**kept, "end_cause": "unknown"}))
    words = ("backup", "restore", first, "--from-cluster", "demo", "--yes")
    assert toolkit(config, *words) == 0, capsys.readouterr().err
    assert head.stage.streams.loads[0][1] == "jobs of demo"
    entry = json.loads(s3.get_object(Bucket=head.bucket, Key=key)["Body"].read())
    assert entry == kept
    assert "backups" in rules(config)

    words = ("destroy", "--yes", "--backups", "--images")
    assert toolkit(config, *words) == 0, capsys.readouterr().err
    assert clients.client("cloudformation").describe_stacks()["Stacks"] == []
    assert toolkit(config, "destroy", "--backups") == 0
    assert "nothing to destroy" in capsys.readouterr().out
    assert toolkit(config, "backup", "list") == 1
    assert "no bucket of backups" in capsys.readouterr().err


def rules(config):
    """Return the lifecycle rules of the stack's template.

    moto makes none of them.
    """
    cloudformation = config.actor.clients.client("cloudformation")
    stack = names.backups_stack(load(config.path))
    body = cloudformation.get_template(StackName=stack)["TemplateBody"]
    return set(re.findall(r"{Id: ([a-z-]+),", str(body)))


def test_the_shared_filesystem_is_backed_up_and_comes_back(config, capsys):
    """Destroy with shared.final_backup, and make a new filesystem of the backup."""
    config.edit("shared: {type: lustre,", "shared: {final_backup: true, type: lustre,")
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    clients = config.actor.clients
    fsx, folder = clients.client("fsx"), config.actor.cloud.options.state / "fsx"
    (old,) = fsx.describe_file_systems()["FileSystems"]
    (folder / old["FileSystemId"] / "home").write_text("ada's")
    assert toolkit(config, "destroy") == 3
    assert "everything in /shared, and its daily backups; a backup of it stays" in (
        capsys.readouterr().err
    )
    assert toolkit(config, "destroy", "--yes") == 0, capsys.readouterr().err
    (backup,) = fsx.describe_backups()["Backups"]
    assert (backup["Lifecycle"], backup["FileSystem"]["FileSystemId"]) == (
        "AVAILABLE",
        old["FileSystemId"],
    )

    made_of = f"final_backup: true, from_backup: {backup['BackupId']},"
    config.edit("final_backup: true,", made_of)
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    (new,) = fsx.describe_file_systems()["FileSystems"]
    assert new["FileSystemId"] != old["FileSystemId"]
    assert (folder / new["FileSystemId"] / "home").read_text() == "ada's"
