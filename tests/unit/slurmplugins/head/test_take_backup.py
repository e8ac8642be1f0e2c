"""A backup has the databases, Slurm's state and a manifest of hashes, which is written last."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.errors import BackupError
from slurmplugins.head.take_backup import BackupStatus, take
from slurmplugins.model import backup
from tests.fakes.clock import FakeClock
from tests.fakes.head_backups import HeadStage

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_645_200.0


@pytest.fixture
def stage(tmp_path: Path) -> HeadStage:
    stage = HeadStage(tmp_path)
    stage.streams.dumps = {"slurm_acct_db": "jobs", "mlflow": "runs", "optuna": "trials"}
    stage.state("job_state", "queue")
    stage.state("hash.1/job.11/script", "#!/bin/sh")
    return stage


def taken(stage: HeadStage) -> backup.Manifest:
    return take(stage.head, stage.files, FakeClock(NOW))


def members(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {item.name: tar.extractfile(item).read() for item in tar}  # type: ignore[union-attr]


def test_each_object_is_what_the_manifest_says(stage: HeadStage):
    manifest = taken(stage)
    prefix = f"backups/{backup.new_id(NOW)}"
    assert manifest.id == backup.new_id(NOW)
    assert manifest.next_job_id == 4712
    assert manifest.versions == backup.Versions("24.11.5", "11.8.3", "0.1.0", "3.17.2", "5.0.0")
    assert manifest.databases == backup.DATABASES
    for item in manifest.objects:
        content = stage.files.objects[f"{prefix}/{item.name}"]
        assert (len(content), hashlib.sha256(content).hexdigest()) == (item.bytes, item.sha256)
    assert backup.parse(stage.files.objects[f"{prefix}/manifest.json"]) == manifest
    state = members(stage.files.objects[f"{prefix}/slurmctld.tar.gz"])
    assert state == {"job_state": b"queue", "hash.1/job.11/script": b"#!/bin/sh"}


def test_the_manifest_is_written_last(stage: HeadStage):
    taken(stage)
    assert stage.files.uploads[-1].endswith("/manifest.json")
    assert len(stage.files.uploads) == 8


def test_the_databases_are_dumped_in_one_transaction_each(stage: HeadStage, monkeypatch):
    dumps: list[list[str]] = []
    save = stage.streams.save
    monkeypatch.setattr(
        stage.streams, "save", lambda argv, path: dumps.append(argv) or save(argv, path)
    )
    taken(stage)
    assert [argv[-1] for argv in dumps] == list(backup.DATABASES)
    assert all("--single-transaction" in argv for argv in dumps)


def test_a_dump_that_fails_leaves_no_manifest_and_no_file(stage: HeadStage):
    stage.streams.failing = "mlflow"
    with pytest.raises(BackupError, match="the dump of mlflow failed: Lost connection"):
        taken(stage)
    assert stage.files.uploads == []
    assert list(stage.folders.work.iterdir()) == []


def test_a_slurmctld_that_does_not_answer_fails_the_backup(stage: HeadStage):
    """Fail, or a restored cluster could use an id again."""
    stage.runner.answer("/usr/bin/scontrol", "show", "config", stderr="Unable", returncode=1)
    with pytest.raises(BackupError, match="scontrol show config failed: Unable"):
        taken(stage)


def test_a_head_without_mlflow_has_no_dump_of_it(stage: HeadStage):
    for folder in list(stage.folders.tracking.rglob("METADATA")):
        folder.unlink()
        folder.parent.rmdir()
    manifest = taken(stage)
    assert manifest.databases == (backup.ACCOUNTING,)
    assert manifest.versions.mlflow == ""


def test_links_and_files_that_disappear_are_left_out(stage: HeadStage, tmp_path: Path):
    """Follow no link: a file elsewhere is no part of the state."""
    secret = tmp_path / "secret"
    secret.write_text("key")
    (stage.folders.slurm_state / "link").symlink_to(secret)
    (stage.folders.slurm_state / "gone").symlink_to(tmp_path / "nothing")
    manifest = taken(stage)
    packed = stage.files.objects[f"backups/{manifest.id}/slurmctld.tar.gz"]
    assert sorted(members(packed)) == ["hash.1/job.11/script", "job_state"]


class Objects:
    """A store of JSON objects in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def put(self, key: str, value: Any) -> None:
        self.values[key] = value

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def create(self, key: str, value: Any) -> bool:
        raise AssertionError(key)


def test_the_status_keeps_the_last_good_backup_beside_a_failure(stage: HeadStage):
    store = Objects()
    status = BackupStatus(store)
    status.failed("no space left", NOW)
    assert store.values["status/backup.json"]["good"] is None
    manifest = taken(stage)
    status.succeeded(manifest, 3.04)
    good = store.values["status/backup.json"]["good"]
    assert (good["id"], good["at"], good["seconds"]) == (manifest.id, NOW, 3.0)
    assert good["bytes"] == sum(item.bytes for item in manifest.objects)
    status.failed("the dump of mlflow failed", NOW + 60)
    assert store.values["status/backup.json"] == {
        "good": good,
        "error": "the dump of mlflow failed",
        "error_at": NOW + 60,
    }
    status.succeeded(manifest, 1)
    assert store.values["status/backup.json"]["error"] == ""
