"""`latest` never means the backup that a restore took of what it was to replace."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.model.backup import BackupObject, Manifest, Versions
from toolkit.deploy.backup_restore import Restore
from toolkit.deploy.backup_store import BackupStore
from toolkit.errors import BackupMissing, BackupUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIRST, SECOND, THIRD = (f"2026-11-2{day}T22-20-00Z" for day in (5, 6, 7))
BEGUN = {"first_job_id": 20_000, "backup": FIRST, "cluster": "demo", "manifest_sha256": "a" * 64}


class Objects:
    """A bucket with the manifests of backups."""

    name = "demo-bak"

    def __init__(self, *before_restore: str) -> None:
        self.objects = {
            f"backups/{item}/manifest.json": _manifest(item, is_before=item in before_restore)
            for item in (FIRST, SECOND, THIRD)
        }

    def exists(self) -> bool:
        return True

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        return ((key, len(data)) for key, data in self.objects.items() if key.startswith(prefix))

    def read(self, key: str) -> bytes | None:
        return self.objects.get(key)


def _manifest(backup_id: str, *, is_before: bool) -> bytes:
    versions = Versions("24.11.5", "11.8.3", "0.1.0")
    accounting = BackupObject("slurm_acct_db.sql.gz", 1, "b" * 64)
    manifest = Manifest(backup_id, "demo", 1.0, 7, versions, (accounting,), is_before)
    return json.dumps(manifest.to_json()).encode()


class Answers:
    """A head that answers which restore began."""

    def __init__(self, begun: Any) -> None:
        self.begun = begun

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        assert argv[1:] == ["begun"]
        return json.dumps(self.begun)


def restore(begun: Any, objects: Objects, *, cluster: str = "demo", instead: bool = False):
    clients: Any = SimpleNamespace(client=lambda _: None, account="123456789012")
    config: Any = SimpleNamespace(cluster=cluster, aws=SimpleNamespace(region="us-east-1"))
    store = BackupStore(config, clients, SimpleNamespace())  # type: ignore[arg-type]  # silent
    store.bucket = objects  # type: ignore[assignment]  # a fake
    target: Any = SimpleNamespace(cluster="demo")
    return Restore(target, clients, Answers(begun), store, SimpleNamespace(), instead)  # type: ignore[arg-type]  # fakes


def test_latest_is_the_newest_backup_that_was_not_taken_before_a_restore():
    """Let a restore that is run again choose the same."""
    assert restore({}, Objects()).choose("latest").id == THIRD
    objects = Objects(SECOND, THIRD)
    assert restore({}, objects).choose("latest").id == FIRST
    assert restore({}, objects).choose(THIRD).id == THIRD, "by its id it can be had"
    with pytest.raises(BackupMissing, match="no complete backup latest"):
        restore({}, Objects(FIRST, SECOND, THIRD)).choose("latest")


def test_latest_is_a_damaged_newest_backup_so_that_the_damage_is_told():
    objects = Objects()
    objects.objects[f"backups/{THIRD}/manifest.json"] = b"{}"
    assert restore({}, objects).choose("latest").id == THIRD


def test_latest_is_the_backup_that_a_restore_began_with():
    assert restore(BEGUN, Objects()).choose("latest").id == FIRST
    assert restore(BEGUN, Objects()).choose(FIRST).id == FIRST


@pytest.mark.parametrize(
    ("reference", "cluster", "command"),
    [
        (SECOND, "demo", f"toolkit backup restore {FIRST} --yes"),
        ("latest", "old", f"toolkit backup restore {FIRST} --yes"),
    ],
)
def test_another_backup_than_the_begun_one_is_refused_with_the_command(reference, cluster, command):
    work = restore(BEGUN, Objects(), cluster=cluster)
    with pytest.raises(
        BackupUnusable, match=f"backup {FIRST} of cluster demo is not complete"
    ) as e:
        work.choose(reference)
    assert command in e.value.next_step


def test_the_command_that_completes_a_restore_names_the_other_cluster():
    work = restore({**BEGUN, "cluster": "old"}, Objects())
    with pytest.raises(BackupUnusable) as caught:
        work.choose("latest")
    assert f"restore {FIRST} --from-cluster old --yes" in caught.value.next_step


def test_a_restore_that_an_earlier_version_began_needs_an_id():
    """Take no newest one: it may have what was to be replaced."""
    work = restore({"first_job_id": 20_000}, Objects())
    with pytest.raises(BackupUnusable, match="the newest backup may be of what it was to replace"):
        work.choose("latest")
    assert work.choose(SECOND).id == SECOND


def test_instead_takes_another_backup_by_its_id_alone():
    work = restore(BEGUN, Objects(), instead=True)
    assert work.choose(SECOND).id == SECOND
    with pytest.raises(BackupUnusable, match="nothing was changed"):
        work.choose("latest")
