"""Backups through the local cloud's S3: written with the head's role, listed, restored, kept.

The head's own code runs here. Its Slurm and its MariaDB are fakes.
"""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict, replace

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud.files import S3Files
from slurmplugins.cloud.stores import S3Store
from slurmplugins.errors import CloudError, Denied, EngineError
from slurmplugins.head.restore_backup import Restore, begun_on
from slurmplugins.head.take_backup import BackupStatus, take
from tests.contract.deploy.conftest import LEAVES_A_CLOUD, said
from tests.contract.deploy.test_role_calls import Stack
from tests.fakes.clock import FakeClock
from tests.fakes.head_backups import HeadStage, Slurmctld
from toolkit import cli
from toolkit.config import load
from toolkit.deploy import names
from toolkit.deploy.storage import Bucket
from toolkit.local.machines.driver import CommandResult

pytestmark = LEAVES_A_CLOUD
PARTS = 9 * 1024 * 1024  # bytes of a file that boto3 sends in parts


class BackupHead:
    """The head's program slurm-backup, with the credentials of the head's role."""

    def __init__(self, config, root) -> None:
        self.config, self.root = config, root
        self.clock = FakeClock(time.time())
        self.other_commands = config.actor.driver.execute
        config.actor.driver.execute = self.execute
        self.renew()

    def renew(self):
        """Be a new head of the cluster."""
        settings = load(self.config.path)
        folder = self.root / f"head-{self.clock.now():.0f}"
        self.stage = HeadStage(folder, settings.cluster)
        self.slurm_conf = folder / "slurm.conf"
        self.slurm_conf.write_text("ClusterName=x\n")
        Slurmctld(self.stage, self.slurm_conf)
        self.bucket = names.bucket(settings, self.config.actor.clients.account)

    def execute(self, instance_id, argv, *, timeout, stdin=b""):
        words = shlex.split(said(stdin.decode()))
        if not words or not words[0].endswith("/slurm-backup"):
            return self.other_commands(instance_id, argv, timeout=timeout, stdin=stdin)
        client = Stack(self.config).client("s3", instance_id)
        try:
            answer = self.work(words[1:], lambda: client)
        except EngineError as error:
            return CommandResult(1, b"", f"{type(error).__name__}: {error}\n".encode())
        return CommandResult(0, json.dumps(answer).encode(), b"")

    def work(self, words, connect):
        self.clock.advance(1)
        match words:
            case ["begun"]:
                begun = begun_on(self.stage.head)
                return asdict(begun) if begun else {}
            case ["take", bucket, *more]:
                files, is_before = S3Files(bucket, connect), more == ["before-restore"]
                manifest = take(self.stage.head, files, self.clock, before_restore=is_before)
                BackupStatus(S3Store(self.bucket, connect)).succeeded(manifest, 1.0)
                return manifest.to_json()
            case [command, backup_id, sha256, *more]:
                restore = Restore(
                    self.stage.head, S3Files(self.bucket, connect), f"restore/{backup_id}",
                    sha256, self.clock, self.slurm_conf, more == ["instead"],
                )  # fmt: skip
                return asdict(restore.check() if command == "check" else restore.run())
        raise AssertionError(words)


@pytest.fixture
def head(shared_cluster, tmp_path, capsys, monkeypatch):
    """The cluster's head, with no backup of an earlier test."""
    monkeypatch.setattr("shutil.chown", lambda *_: None)
    driver = shared_cluster.actor.driver
    monkeypatch.setattr(driver, "execute", driver.execute)  # put back after the test
    head = BackupHead(shared_cluster, tmp_path)
    s3 = shared_cluster.actor.clients.client("s3")
    Bucket(s3, f"{head.bucket}-bak").empty()
    s3.delete_object(Bucket=head.bucket, Key="status/backup.json")
    capsys.readouterr()
    return head


def toolkit(config, *words):
    at = 2 if words[0] == "backup" else 1  # a group and its command
    return cli.run([*words[:at], "--config", str(config.path), *words[at:]])


def listed(config, capsys, *more):
    capsys.readouterr()
    assert toolkit(config, "backup", "list", "--json", *more) == 0
    return [item["id"] for item in json.loads(capsys.readouterr().out)]


def test_the_head_writes_backups_and_can_neither_read_nor_delete_them(head, tmp_path):
    """Send a large file in parts, as boto3 does."""
    stack = Stack(head.config)
    client = stack.client("s3", stack.head)
    bucket = f"{stack.bucket}-bak"
    files = S3Files(bucket, lambda: client)
    path = tmp_path / "dump"
    path.write_bytes(b"d" * PARTS)
    files.upload(path, "backups/2026-11-25T22-20-00Z/slurm_acct_db.sql.gz")
    with pytest.raises(Denied):
        files.upload(path, "records/ledger/instances/i-1.json")
    with pytest.raises(CloudError):  # S3 answers HEAD without words
        files.download("backups/2026-11-25T22-20-00Z/slurm_acct_db.sql.gz", tmp_path / "back")
    where = {"Bucket": bucket, "Key": "backups/2026-11-25T22-20-00Z/slurm_acct_db.sql.gz"}
    for call, arguments in (
        (client.get_object, where),
        (client.delete_object, where),
        (client.list_objects_v2, {"Bucket": bucket}),
        (client.put_bucket_lifecycle_configuration, {"Bucket": bucket}),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call(**arguments)
    sizes = stack.config_client("s3").head_object(**where)["ContentLength"]
    assert sizes == PARTS


def test_a_backup_is_taken_listed_checked_and_restored(head, capsys):
    config = head.config
    head.stage.streams.dumps = {"slurm_acct_db": "jobs of before"}
    assert toolkit(config, "backup", "list") == 0
    assert capsys.readouterr().out == "no backups yet\n"
    assert toolkit(config, "backup", "now", "--dry-run") == 0
    assert toolkit(config, "backup", "now") == 0
    assert "s3://demo-" in capsys.readouterr().out
    (first,) = listed(config, capsys)

    head.stage.streams.dumps = {"slurm_acct_db": "jobs of after"}
    assert toolkit(config, "backup", "restore", "latest", "--dry-run") == 0
    text = capsys.readouterr().out
    assert f"backup {first} of cluster demo: all hashes are right" in text
    assert "replaces: 0 jobs, 0 MLflow runs, 0 trials of sweeps" in text
    assert toolkit(config, "backup", "restore", first) == 3
    assert "this replaces data of cluster demo" in capsys.readouterr().err
    assert head.stage.streams.loads == []

    assert toolkit(config, "backup", "restore", first, "--yes") == 0, capsys.readouterr().err
    output = capsys.readouterr().out
    assert head.stage.streams.loads[0][1] == "jobs of before"
    before, second = listed(config, capsys)
    assert before == first
    assert f"backup {second} has what was there before" in output


def test_latest_is_the_backup_that_a_restore_began_with_when_it_is_run_again(head, capsys):
    """Never restore what the first run took of the empty cluster."""
    config, streams = head.config, head.stage.streams
    streams.dumps = {"slurm_acct_db": "jobs of before"}
    assert toolkit(config, "backup", "now") == 0
    (first,) = listed(config, capsys)
    streams.dumps, streams.failing = {"slurm_acct_db": "jobs of after"}, ""
    loads = streams.feed
    streams.feed = lambda argv, path: replace(loads(argv, path), returncode=2)
    assert toolkit(config, "backup", "restore", "latest", "--yes") == 1
    assert "half way" in capsys.readouterr().err
    streams.feed = loads
    streams.loads.clear()

    _, second = listed(config, capsys)
    assert toolkit(config, "backup", "restore", second, "--yes") == 1
    assert f"toolkit backup restore {first} --yes" in capsys.readouterr().err
    assert toolkit(config, "backup", "restore", "latest", "--yes") == 0, capsys.readouterr().err
    assert streams.loads[0][1] == "jobs of before"
    assert f"restored {first}" in capsys.readouterr().out
    assert toolkit(config, "backup", "restore", "latest", "--dry-run") == 0
    assert f"backup {first} of" in capsys.readouterr().out, "not that of before the restore"


def test_a_backup_that_was_changed_or_does_not_exist_is_refused(head, capsys):
    config = head.config
    assert toolkit(config, "backup", "now") == 0
    (first,) = listed(config, capsys)
    s3, bucket = config.actor.clients.client("s3"), f"{head.bucket}-bak"
    assert toolkit(config, "backup", "restore", "2020-01-01T00-00-00Z", "--yes") == 1
    assert "backup-missing" in capsys.readouterr().err

    s3.put_object(Bucket=bucket, Key=f"backups/{first}/mlflow.sql.gz", Body=b"other")
    for more in (["--dry-run"], ["--yes"]):
        assert toolkit(config, "backup", "restore", first, *more) == 1
        assert "mlflow.sql.gz is not what was saved" in capsys.readouterr().err
    s3.put_object(Bucket=bucket, Key=f"backups/{first}/manifest.json", Body=b"{}")
    assert toolkit(config, "backup", "restore", first, "--yes") == 1
    assert "the manifest can't be read" in capsys.readouterr().err
    s3.delete_object(Bucket=bucket, Key=f"backups/{first}/manifest.json")
    assert listed(config, capsys) == [], "without a manifest it is unfinished"
    assert head.stage.streams.loads == []


def test_jobs_in_the_queue_refuse_a_restore(head, capsys):
    assert toolkit(head.config, "backup", "now") == 0
    head.stage.runner.answer("/usr/bin/squeue", stdout="7\n")
    assert toolkit(head.config, "backup", "restore", "latest", "--yes") == 1
    assert "1 job is in the queue; nothing was changed" in capsys.readouterr().err
    assert head.stage.streams.loads == []


def test_status_tells_the_age_of_the_last_good_backup_and_warns(head, capsys):
    config = head.config
    s3 = config.actor.clients.client("s3")
    assert toolkit(config, "status") == 0
    assert "none yet" in capsys.readouterr().out
    assert toolkit(config, "backup", "now") == 0
    capsys.readouterr()
    assert toolkit(config, "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert status["warnings"] == []
    assert status["backup"]["id"]

    s3.put_object(
        Bucket=head.bucket,
        Key="status/backup.json",
        Body=json.dumps({"good": {"id": "x", "at": time.time()}, "error": "no space left"}),
    )
    assert toolkit(config, "status") == 0, "people can work all the same"
    assert "warning: the last backup failed: no space left" in capsys.readouterr().out
