"""A manifest says by what it was hashed, and none that can't be checked is believed."""

import json

import pytest

from toolkit.training import manifest, shard


@pytest.fixture
def written(tmp_path):
    folder = tmp_path / "step-00000001.000001"
    folder.mkdir()
    with shard.HashingWriter(folder / "a") as writer:
        writer.write(b"content")
    manifest.commit(folder, [writer.entry()], {"step": 1})
    return folder


def restate(folder, **changes):
    fields = json.loads((folder / manifest.MANIFEST).read_bytes()) | changes
    content = json.dumps(fields).encode()
    (folder / manifest.MANIFEST).write_bytes(content)
    manifest.seal(folder, content)


def test_the_hash_is_named(written):
    assert json.loads((written / manifest.MANIFEST).read_bytes())["hash"] == "xxh3-128"


def test_one_of_another_version_is_refused(written):
    restate(written, version=2, hash="sha256")
    with pytest.raises(shard.Corrupt, match="is of version 2, not 3"):
        manifest.read(written)


def test_one_hashed_by_what_this_version_can_not_check_is_refused(written):
    restate(written, hash="blake3")
    with pytest.raises(shard.Corrupt, match="hashed by blake3, which this version can't check"):
        manifest.read(written)


def test_a_file_of_another_size_is_refused_before_anything_is_read(written):
    (written / "a").write_bytes(b"conten")
    with pytest.raises(shard.Corrupt, match="6 bytes, 7 were written"):
        manifest.check_sizes(written, manifest.read(written), part=0, of=1)
