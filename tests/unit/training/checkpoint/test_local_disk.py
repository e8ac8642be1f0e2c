"""A save through nodes' disks is complete, or reported as failed."""

import pytest

from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.local_disk import ViaLocalDisk
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed


@pytest.fixture
def place(tmp_path):
    """The shared folder, and a disk of the node."""
    return tmp_path / "shared", tmp_path / "local"


def checkpointer(place, codec, world):
    return Checkpointer(
        place[0], world, codec=ViaLocalDisk(codec, place[1], world), background=True
    )


def loaded(place, codec, part):
    model = part()
    found = Checkpointer(place[0], Solo(), codec=codec).load({"model": model})
    return found and model.value["step"]


def test_what_is_on_the_nodes_disk_is_the_state_at_the_time_of_begin(place, json_codec, part):
    write, folders = json_codec.write, []

    def seen(folder, staged, world):
        folders.append(folder)
        return write(folder, staged, world)

    json_codec.write = seen
    checkpoints = checkpointer(place, json_codec, Solo())
    model = part({"step": 1})
    checkpoints.start_save({"model": model}, step=1, facts={})
    model.value["step"] = 2
    assert checkpoints.wait_for_save().step == 1
    assert loaded(place, json_codec, part) == 1
    assert folders == [place[1] / "rank-00000"]  # the codec writes once
    assert not place[1].exists()


def test_a_save_before_the_instance_goes_takes_no_detour(place, json_codec, part):
    place[1].write_text("no folder can be made here")
    checkpoints = checkpointer(place, json_codec, Solo())
    assert checkpoints.save({"model": part({"step": 1})}, step=1, facts={}, urgent=True).step == 1
    assert loaded(place, json_codec, part) == 1


def test_a_full_disk_of_one_node_fails_the_save_on_every_rank_and_is_free_again(
    place, json_codec, part, ranks
):
    class Full(type(json_codec)):
        def write(self, folder, staged, world):
            entries = super().write(folder, staged, world)
            if world.rank == 1:
                raise OSError(28, "No space left on device")
            return entries

    def one(world):
        checkpointer(place, Full(), world).start_save(
            {"model": part({"step": 1})}, step=1, facts={}
        )

    assert [type(result) for result in ranks(2, one)] == [CheckpointFailed] * 2
    assert not list(place[0].glob("*"))
    assert not (place[1] / "rank-00001").exists()


def test_bytes_that_the_nodes_disk_changes_are_no_checkpoint(place, json_codec, part):
    checkpoints = checkpointer(place, json_codec, Solo())
    checkpoints.start_save({"model": part({"step": 1})}, step=1, facts={})
    checkpoints.wait_for_save()
    whole = json_codec.write

    def lies(folder, staged, world):
        entries = whole(folder, staged, world)
        path = folder / entries[0].name
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        return entries

    json_codec.write = lies
    checkpoints.start_save({"model": part({"step": 2})}, step=2, facts={})
    with pytest.raises(CheckpointFailed, match="differs from what was written"):
        checkpoints.wait_for_save()
    assert loaded(place, json_codec, part) == 1


def test_what_a_kill_left_on_the_disk_is_deleted_by_the_next_attempt(place, json_codec):
    (place[1] / "rank-00005").mkdir(parents=True)
    (place[1] / "rank-00005" / "file").write_text("of a rank that is gone")
    ViaLocalDisk(json_codec, place[1], Solo())
    assert not place[1].exists()
