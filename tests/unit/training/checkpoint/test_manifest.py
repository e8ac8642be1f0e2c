"""A manifest names its hash function.

A manifest that can't be checked is refused.
"""

import hashlib
import json
import os
import sys

import pytest

from tests.fakes import checkpoint_disk as disk
from tests.fakes.training import BytesCodec, Weights
from toolkit.training.checkpoint import hashed_file, manifest
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, CheckpointUnreadable, Corrupt, Unreadable


@pytest.fixture
def written(tmp_path):
    folder = tmp_path / "step-00000001.000001"
    folder.mkdir()
    with hashed_file.HashingWriter(folder / "a") as writer:
        writer.write(b"content")
    manifest.commit(folder, [writer.entry()], {"step": 1})
    return folder


def restate(folder, **changes):
    fields = json.loads((folder / manifest.MANIFEST).read_bytes()) | changes
    content = json.dumps(fields).encode()
    (folder / manifest.MANIFEST).write_bytes(content)
    manifest.write_commit(folder, content)


def test_the_hash_is_named(written):
    (file,) = json.loads((written / manifest.MANIFEST).read_bytes())["files"]
    assert file["hash"] == "xxh3-128"


def test_a_manifest_of_the_version_before_is_read(written):
    content = hashlib.sha256(b"content")
    file = {
        "name": "a",
        "size": 7,
        "sha256": hashlib.sha256(content.digest()).hexdigest(),
        "blocks": [content.hexdigest()],
    }
    restate(written, version=2, hash="sha256", files=[file])
    assert manifest.verify(written).facts == {"step": 1}
    (written / "a").write_bytes(b"Content")
    with pytest.raises(Corrupt, match="content differs"):
        manifest.verify(written)


def test_a_manifest_of_a_later_version_is_not_called_damaged(written):
    restate(written, version=4)
    with pytest.raises(Unreadable, match="has version 4; this toolkit reads 3"):
        manifest.read(written)


def test_a_manifest_with_an_unknown_hash_algorithm_is_not_called_damaged(written):
    (file,) = json.loads((written / manifest.MANIFEST).read_bytes())["files"]
    restate(written, files=[file | {"hash": "blake3"}])
    with pytest.raises(
        Unreadable, match="this version of the toolkit does not know the hash blake3"
    ):
        manifest.read(written)


@pytest.fixture
def _without_xxhash(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)


@pytest.mark.usefixtures("_without_xxhash")
def test_without_xxhash_what_is_written_has_sha256(tmp_path):
    with hashed_file.HashingWriter(tmp_path / "a") as writer:
        writer.write(b"content")
    assert writer.entry().hash == "sha256"
    assert writer.entry().blocks == (hashlib.sha256(b"content").hexdigest(),)


def test_a_newest_that_can_not_be_checked_here_is_never_passed_over(tmp_path, monkeypatch):
    def checkpoints():
        return Checkpointer(tmp_path, Solo(), codec=BytesCodec())

    monkeypatch.setitem(sys.modules, "xxhash", None)
    checkpoints().save({"model": Weights(b"older")}, step=1, facts={})
    monkeypatch.delitem(sys.modules, "xxhash")
    checkpoints().save({"model": Weights(b"newer")}, step=2, facts={})
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(CheckpointUnreadable, match="needs the Python package xxhash"):
        checkpoints().load({"model": Weights()})
    monkeypatch.delitem(sys.modules, "xxhash")
    model = Weights()
    checkpoints().load({"model": model})
    assert model.content == b"newer"


def test_what_could_not_be_read_back_stays_until_a_newer_one_was(tmp_path, monkeypatch):
    checkpoints, preadv = Checkpointer(tmp_path, Solo(), codec=BytesCodec()), os.preadv

    def save(*steps):
        for step in steps:
            checkpoints.save({"model": Weights(b"content")}, step=step, facts={})

    def steps():
        return [int(folder.name[5:13]) for folder in checkpoints.committed()]

    save(1, 2)
    monkeypatch.setattr(os, "preadv", disk.fail)
    for step in (3, 4, 5):
        with pytest.raises(CheckpointUnreadable, match=r"\[Errno 5\] Input/output error"):
            save(step)
    assert steps() == [5, 4, 2, 1]
    monkeypatch.setattr(os, "preadv", preadv)
    save(6)
    assert steps() == [6, 2]


def test_what_was_read_back_as_something_else_goes_at_once(tmp_path, monkeypatch):
    checkpoints, commit = Checkpointer(tmp_path, Solo(), codec=BytesCodec()), manifest.commit

    def and_damage(folder, *args, **options):
        commit(folder, *args, **options)
        (folder / "weights.bin").write_bytes(b"CONTENT")

    checkpoints.save({"model": Weights(b"content")}, step=1, facts={})
    monkeypatch.setattr(manifest, "commit", and_damage)
    with pytest.raises(CheckpointFailed, match="content differs"):
        checkpoints.save({"model": Weights(b"content")}, step=2, facts={})
    assert [folder.name for folder in tmp_path.iterdir()] == ["step-00000001.000001"]


def test_a_file_of_another_size_is_refused_before_anything_is_read(written):
    (written / "a").write_bytes(b"conten")
    with pytest.raises(Corrupt, match="file has 6 bytes; 7 were written"):
        manifest.check_sizes(written, manifest.read(written), rank=0, world_size=1)
