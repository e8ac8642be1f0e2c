"""Manifests: their content, their commit, and the files that each rank reads."""

import hashlib
import json
from contextlib import nullcontext
from dataclasses import asdict

import pytest

from toolkit.training.checkpoint import hashed_file, manifest
from toolkit.training.checkpoint.hashed_file import BLOCK, FileEntry
from toolkit.training.checkpoint.manifest import Manifest
from toolkit.training.errors import Corrupt, Unreadable
from toolkit.training.run_folder import checkpoint_names

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def folder(tmp_path):
    """A new folder for files, not committed."""
    path = tmp_path / "step-00000001.000001"
    path.mkdir()
    return path


@pytest.fixture
def files(folder):
    return [write(folder, name) for name in NAMES]


def write(folder, name):
    with hashed_file.HashingWriter(folder / name) as writer:
        writer.write(f"content of {name}".encode())
    return writer.entry()


def committed(folder, files, **facts):
    manifest.commit(folder, files, facts)
    return manifest.read(folder)


# Content of a manifest


def test_what_was_committed_is_read(folder, files):
    found = committed(folder, files, step=1, position=[2, 3])
    assert (found.files, found.facts) == (tuple(files), {"step": 1, "position": [2, 3]})
    assert json.loads((folder / "manifest.json").read_bytes()) == {
        "version": 3,
        "block": BLOCK,
        "files": [{**asdict(file), "blocks": list(file.blocks)} for file in files],
        "facts": {"step": 1, "position": [2, 3]},
    }
    content = (folder / "manifest.json").read_bytes()
    proof = {"manifest_sha256": hashlib.sha256(content).hexdigest()}
    assert json.loads((folder / "COMMITTED").read_bytes()) == proof
    assert found.entry("b") == files[1]
    assert found.entry("x") is None


def test_a_file_that_was_read_whole_is_known_to_be_good(folder, files):
    found = committed(folder, files)
    with found.open(folder, "b") as stream:
        assert stream.read() == b"content of b"
    assert found.verified_blocks == {("b", 0)}


def test_a_file_that_is_not_in_it_is_not_opened(folder, files):
    (folder / "x").write_text("there, and not vouched for")
    found = committed(folder, files)
    with pytest.raises(Corrupt, match=r"^step-00000001\.000001: has no x$"):
        found.open(folder, "x")


@pytest.mark.parametrize("name", ["manifest.json", "COMMITTED"])
def test_a_folder_without_either_of_its_two_records_is_no_checkpoint(folder, files, name):
    committed(folder, files)
    (folder / name).unlink()
    missing = rf"^{folder.name}: No such file or directory: .*{name}$"
    with pytest.raises(Corrupt, match=missing):
        manifest.read(folder)


def test_a_manifest_that_was_changed_after_the_commit_is_refused(folder, files):
    committed(folder, files)
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(Corrupt, match=r"^step-\S+: manifest.json is not the one that was "):
        manifest.read(folder)


@pytest.mark.parametrize("changes", [{"block": BLOCK * 2}, {"block": None}, {"version": 1}])
def test_a_manifest_in_another_form_is_not_called_damaged(changes):
    fields = {"version": 3, "block": BLOCK, "files": [], "facts": {}}
    assert manifest.parse("x", json.dumps(fields).encode()) == Manifest((), {})
    number = changes.get("version", 3)
    with pytest.raises(
        Unreadable, match=rf"^x: manifest.json has version {number}; this toolkit reads 3$"
    ):
        manifest.parse("x", json.dumps(fields | changes).encode())


# Commit and removal


@pytest.fixture
def steps(monkeypatch):
    """The paths that are made durable, in order."""
    seen = []

    def noted(path, content):
        seen.append(path)
        path.write_bytes(content)

    monkeypatch.setattr(manifest, "fsync_directory", seen.append)
    monkeypatch.setattr(manifest, "write_atomic", noted)
    return seen


def test_a_commit_makes_the_files_names_durable_then_the_manifest_then_the_folders_name(
    folder, files, steps
):
    """Write COMMITTED last, after all names are durable."""

    def put(path, content):
        assert content == manifest.commit_content((folder / "manifest.json").read_bytes())
        steps.append(path)

    manifest.commit(folder, files, {}, write=put)
    assert steps == [folder, folder / "manifest.json", folder.parent, folder / "COMMITTED"]


def test_a_folder_that_is_removed_is_no_checkpoint_before_its_first_file_goes(folder, files, steps):
    committed(folder, files)
    del steps[:]

    def rmtree(path):
        assert not checkpoint_names.is_committed(path)
        steps.append(f"rmtree {path.name}")

    manifest.remove(folder, rmtree=rmtree)
    assert steps == [folder, f"rmtree {folder.name}"]


def test_a_folder_that_never_was_a_checkpoint_is_removed_whole(folder, files):
    assert files
    manifest.remove(folder)
    assert not folder.exists()


# Files that each rank reads


@pytest.mark.parametrize("damage", ["cut", "delete"])
@pytest.mark.parametrize(
    ("share", "seen"),
    [
        ({"rank": 0, "world_size": 1}, True),
        ({"rank": 0, "world_size": 3}, True),
        ({"rank": 1, "world_size": 3}, False),
    ],
)
def test_each_rank_looks_at_the_sizes_of_its_part_of_the_files(folder, files, damage, share, seen):
    found = committed(folder, files)
    if damage == "cut":
        (folder / "d").write_bytes(b"")
    else:
        (folder / "d").unlink()
    with pytest.raises(Corrupt) if seen else nullcontext():
        manifest.check_sizes(folder, found, **share)


def read_by(monkeypatch):
    seen = []
    monkeypatch.setattr(
        manifest, "verify_file", lambda _, entry, numbers: seen.append((entry.name, list(numbers)))
    )
    return seen


def test_the_ranks_together_read_each_block_that_nobody_has_found_good_and_no_other(
    folder, monkeypatch
):
    seen = read_by(monkeypatch)
    entries = tuple(FileEntry(name, 0, "", ("block",) * 3, "sha256") for name in "abc")
    good = {("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)}
    manifest.verify_rest(folder, Manifest(entries, {}), good, rank=0, world_size=1)
    assert seen == [("a", [0, 2]), ("c", [1, 2])]
    del seen[:]
    for part in range(3):
        manifest.verify_rest(folder, Manifest(entries, {}), good, rank=part, world_size=3)
    assert seen == [("a", [0]), ("c", [2]), ("a", [2]), ("c", [1])]


@pytest.mark.parametrize(
    ("how", "seen"),
    [({}, True), ({"rank": 0, "world_size": 3}, True), ({"rank": 1, "world_size": 3}, False)],
)
def test_each_rank_verifies_its_part_of_the_files(folder, files, how, seen):
    committed(folder, files)
    (folder / "d").write_bytes(b"Content of d")
    with pytest.raises(Corrupt, match="d: content differs") if seen else nullcontext():
        assert manifest.verify(folder, **how).files == tuple(files)


def test_a_verification_that_is_called_off_reads_no_further_block(folder, files):
    committed(folder, files)
    (folder / "b").write_bytes(b"Content of b")
    asked = []

    def leave():
        asked.append(1)
        return True

    assert manifest.verify(folder, stop=leave).files == tuple(files)
    assert len(asked) == 1
