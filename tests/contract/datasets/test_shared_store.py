"""A folder store open to all users, as the cluster makes it.

Every user adds content, and no user replaces another's.
"""

import os
import stat

import pytest

from tests.fakes.datasets import write_tree
from toolkit.datasets.derive.derive import derived
from toolkit.datasets.locks import Lock
from toolkit.datasets.settings import DatasetSettings
from toolkit.datasets.store.add import add


@pytest.fixture
def store(store):
    store.root.mkdir(mode=0o755)
    store.root.chmod(0o1777)
    return store


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_in_a_store_has_the_mode_of_the_store(catalog, store, tmp_path):
    add(catalog, write_tree(tmp_path / "raw", {"x": b"abc"}), name="raw")
    settings = DatasetSettings(
        store=str(store.root), cache_folder=tmp_path / "cache", cache_limit=1 << 20
    )

    def build(inputs, output, params):
        (output / "y").write_bytes(b"def")

    derived(["raw"], build, where=settings)
    folders = [path for path in store.root.rglob("*") if path.is_dir()]
    assert {"objects", "names", "raw", "building"} <= {path.name for path in folders}
    assert {oct(mode(path)) for path in folders} == {oct(0o1777)}
    (lock,) = (path for path in (store.root / "building").iterdir() if path.is_file())
    assert mode(lock) == 0o666


def test_add_does_not_replace_the_manifest_of_another_user(catalog, store, tmp_path, monkeypatch):
    root = write_tree(tmp_path / "raw", {"x": b"abc"})
    version = add(catalog, root).version
    (record,) = (store.root / "manifests").iterdir()
    before = record.stat().st_ino
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 4711)
        assert add(catalog, root, name="mine").version == version
    assert record.stat().st_ino == before
    add(catalog, root)
    assert record.stat().st_ino != before  # rewritten: young for garbage collection


def test_a_lock_for_all_users_excludes_other_holders(tmp_path):
    with (
        Lock(tmp_path / "key", all_users=True) as first,
        Lock(tmp_path / "key", all_users=True) as second,
    ):
        assert first.try_exclusive()
        assert not second.try_exclusive()
