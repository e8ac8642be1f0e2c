"""A checkpoint is either exactly the saved state, or no checkpoint."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes import checkpoint_disk as disk
from tests.fakes.checkpoint_disk import Killed
from toolkit.training.attempt.fencing import UNCLAIMED, Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.tier import FolderTier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, Superseded
from toolkit.training.run_folder import checkpoint_names


def save(root, codec, part, step, world=None):
    Checkpointer(root, world or Solo(), codec=codec).save(
        {"model": part({"step": step})}, step=step, facts={"position": step * 10}
    )


def load(root, codec, part):
    model = part()
    found = Checkpointer(root, Solo(), codec=codec).load({"model": model})
    return found, model.value.get("step")


def test_what_is_saved_comes_back(tmp_path, json_codec, part):
    save(tmp_path, json_codec, part, 7)
    found, step = load(tmp_path, json_codec, part)
    assert step == found.facts["step"] == 7
    assert (found.facts["position"], found.facts["world_size"]) == (70, 1)


def test_no_checkpoint_is_none_and_no_error(tmp_path, json_codec, part):
    assert load(tmp_path / "absent", json_codec, part) == (None, None)


def test_the_newest_two_are_kept_and_older_ones_go(tmp_path, json_codec, part):
    for step in (1, 2, 3, 4):
        save(tmp_path, json_codec, part, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000003.000003",
        "step-00000004.000004",
    ]


def test_fewer_than_two_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 2"):
        Checkpointer(tmp_path, Solo(), keep=1)


def test_saved_last_wins_over_furthest_after_a_fall_back(tmp_path, json_codec, part):
    for step in (100, 200, 150):
        save(tmp_path, json_codec, part, step)
    assert load(tmp_path, json_codec, part)[1] == 150


@pytest.mark.parametrize("name", ["shared.json", "rank-0.json", "manifest.json", "COMMITTED"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damage_to_any_file_falls_back_to_the_one_before(tmp_path, json_codec, part, name, damage):
    save(tmp_path, json_codec, part, 1)
    save(tmp_path, json_codec, part, 2)
    path = tmp_path / "step-00000002.000002" / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-3])
    else:
        path.unlink()
    found, step = load(tmp_path, json_codec, part)
    assert (found.name, step) == ("step-00000001.000001", 1)
    if (name, damage) != ("COMMITTED", "delete"):
        assert "step-00000002.000002" in found.rejected[0]


def test_nothing_good_left_is_an_error_and_not_a_fresh_start(tmp_path, json_codec, part):
    save(tmp_path, json_codec, part, 1)
    (tmp_path / "step-00000001.000001" / "shared.json").write_bytes(b"{}")
    with pytest.raises(CheckpointFailed, match=r"no checkpoint can be trusted.*shared\.json"):
        load(tmp_path, json_codec, part)


def test_one_that_could_not_be_loaded_does_not_count_as_kept(tmp_path, json_codec, part):
    save(tmp_path, json_codec, part, 1)
    save(tmp_path, json_codec, part, 2)
    (tmp_path / "step-00000002.000002" / "shared.json").write_bytes(b"{}")
    checkpoints = Checkpointer(tmp_path, Solo(), codec=json_codec)
    checkpoints.load({"model": part()})
    checkpoints.save({"model": part({"step": 2})}, step=2, facts={})
    assert [path.name for path in checkpoints.committed()] == [
        "step-00000002.000003",
        "step-00000001.000001",
    ]


class Flow:
    """A way to make a checkpoint, with a save to disturb."""

    def __init__(self, root, codec, part, *, behind, tier, owned) -> None:
        self.root, self.codec, self.part, self.behind = root, codec, part, behind
        self.tiers = (FolderTier(root / "far"),) if tier else ()
        self.fence = Fence(root / "near" / "owner" / "7.0.first.ab") if owned else UNCLAIMED
        if self.fence.folder:
            self.fence.folder.mkdir(parents=True)

    def checkpoints(self):
        return Checkpointer(
            self.root / "near",
            Solo(),
            codec=self.codec,
            tiers=self.tiers,
            background=self.behind,
            fence=self.fence,
        )

    def save(self, step):
        checkpoints, parts = self.checkpoints(), {"model": self.part({"step": step})}
        if self.behind:
            checkpoints.start_save(parts, step=step, facts={})
            return checkpoints.wait_for_save()
        return checkpoints.save(parts, step=step, facts={})

    def load(self):
        model = self.part()
        found = self.checkpoints().load({"model": model})
        assert found.facts["step"] == model.value["step"]
        return model.value["step"]


@pytest.fixture(params=["", "behind and tier", "owned"])
def flow(request, tmp_path, json_codec, part, monkeypatch):
    # Faults strike at the call, and disk.Power notes it: waiting for the disk proves nothing.
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def make(name):
        return Flow(
            tmp_path / str(name),
            json_codec,
            part,
            behind="behind" in request.param,
            tier="tier" in request.param,
            owned="owned" in request.param,
        )

    return make


def disturbed(one, disturb):
    """Return the step that is loaded after a disturbed third save."""
    one.save(1)
    one.save(2)
    disturb(lambda: one.save(3))
    found = one.load()
    one.save(4)  # the next save works after each disturbance
    assert one.load() == 4
    return found


@pytest.mark.parametrize("flow", ["owned", "owned, behind and tier"], indirect=True)
def test_a_run_taken_over_at_any_file_operation_of_a_save_gets_no_checkpoint_from_it_any_more(flow):
    outcomes = []
    for number in range(1, 100):
        one = flow(number)
        one.save(1)
        one.save(2)
        then = []

        def take_over(call, args, one=one, then=then):
            shutil.rmtree(one.fence.folder)
            then.append(one.load())
            return call(*args)

        with disk.strike(number, take_over), suppress(Superseded, CheckpointFailed):
            one.save(3)
        if not then:
            break
        outcomes.append(then[0])
        assert one.load() == then[0]
        with pytest.raises(Superseded):
            one.save(4)
    assert len(outcomes) > 10  # the operations were really struck
    assert set(outcomes) == {2, 3}


def test_sigkill_at_any_file_operation_of_a_save_leaves_a_good_checkpoint(flow):
    outcomes, struck = [], []

    def disturb(save):
        struck.append(disk.killed(len(struck) + 1, save))

    for number in range(1, 100):
        outcomes.append(disturbed(flow(number), disturb))
        if not struck[-1]:
            break
    assert len(outcomes) > 10  # the operations were really struck
    assert set(outcomes) == {2, 3}
    assert outcomes == sorted(outcomes)  # the old one until the commit, then the new one


@pytest.mark.parametrize("fault", [disk.tear, disk.fill])
def test_a_torn_write_or_a_full_disk_leaves_a_good_checkpoint_and_the_truth_is_told(flow, fault):
    outcomes = []

    def disturb(save):
        with disk.strike(len(outcomes) + 1, fault) as met:
            try:
                save()
            except (Killed, CheckpointFailed):
                outcomes.append((len(met), False))
            else:
                outcomes.append((len(met), True))

    for number in range(1, 100):
        found = disturbed(flow(number), disturb)
        met, told = outcomes[-1]
        assert found in {2, 3}
        assert found == 3 or not told
        if met < number:
            break
    assert (len(outcomes) > 10, outcomes[-1][1]) == (True, True)


def test_a_checkpoint_that_was_committed_survives_a_power_cut(flow):
    one = flow("power")
    for place in ("near", "far"):
        (one.root / place).mkdir(parents=True, exist_ok=True)
    with disk.Power(one.root) as power:
        for step in (1, 2, 3):
            one.save(step)
    power.cut()
    assert one.load() == 3
    for tier in one.tiers:
        shutil.rmtree(one.root / "near")
        assert one.load() == 3, tier


@pytest.fixture
def vouched(monkeypatch):
    """A function that records names not yet on disk at renames.

    At the rename of a manifest or commit, all its files must be on disk.
    """
    rename, seen = Path.replace, []

    def watch(power):
        def noted(path, target):
            folder = Path(target).parent
            if Path(target).name in {manifest.MANIFEST, checkpoint_names.COMMITTED}:
                needed = [each for each in folder.iterdir() if each.suffix != ".tmp"]
                needed += [folder] * (Path(target).name == checkpoint_names.COMMITTED)
                seen.append((Path(target), [each for each in needed if not power.keeps(each)]))
            return rename(path, target)

        monkeypatch.setattr(Path, "replace", noted)
        return seen

    return watch


def test_a_name_that_vouches_for_files_is_given_when_those_are_on_disk(flow, vouched):
    """Record the renames of a save and of a tier's fetch.

    The manifest's rename comes after its files, and the commit's after the manifest and the folder.
    This holds for each copy.
    """
    one = flow("order")
    for place in ("near", "far"):
        (one.root / place).mkdir(parents=True, exist_ok=True)
    with disk.Power(one.root) as power:
        seen = vouched(power)
        one.save(1)
        for _ in one.tiers:  # the checkpoint is fetched from there
            # Renamed, not deleted: a new folder could have the same inode, and would count as one
            # on disk.
            next((one.root / "near").glob("step-*")).rename(one.root / "gone")
            assert one.load() == 1
    assert [path.name for path, _ in seen] == ["manifest.json", "COMMITTED"] * (len(seen) // 2)
    assert len(seen) == 2 + 4 * len(one.tiers)
    assert [(path, lost) for path, lost in seen if lost] == []


def test_a_save_whose_bytes_arrived_wrong_fails_and_neither_older_one_goes(
    tmp_path, json_codec, part
):
    class Lying(type(json_codec)):
        def write(self, folder, staged, world):
            entries = super().write(folder, staged, world)
            content = bytearray((folder / "shared.json").read_bytes())
            content[len(content) // 2] ^= 1
            (folder / "shared.json").write_bytes(content)
            return entries

    save(tmp_path, json_codec, part, 1)
    save(tmp_path, json_codec, part, 2)
    for step in (3, 4):
        with pytest.raises(CheckpointFailed, match=r"shared\.json"):
            save(tmp_path, Lying(), part, step)
    found, step = load(tmp_path, json_codec, part)
    assert (step, found.rejected) == (2, ())
    assert len(list(tmp_path.iterdir())) == 2


class FullDisk:
    """A codec with which rank 1's disk is full."""

    def __init__(self, codec) -> None:
        self.codec = codec

    def stage(self, *args, **options):
        return self.codec.stage(*args, **options)

    def write(self, folder, staged, world):
        if world.rank == 1:
            raise OSError(28, "No space left on device")
        return self.codec.write(folder, staged, world)


def test_a_full_disk_on_one_rank_is_an_error_on_all_and_leaves_the_old_one(
    tmp_path, json_codec, part, ranks
):
    ranks(2, lambda world: save(tmp_path, json_codec, part, 1, world))
    results = ranks(2, lambda world: save(tmp_path, FullDisk(json_codec), part, 2, world))
    assert [type(result) for result in results] == [CheckpointFailed, CheckpointFailed]
    assert "No space left" in str(results[0])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.000001"]
    assert load(tmp_path, json_codec, part)[1] == 1


def test_every_rank_loads_the_same_checkpoint_even_if_only_one_finds_it_bad(
    tmp_path, json_codec, part, ranks
):
    for step in (1, 2):
        ranks(3, lambda world, step=step: save(tmp_path, json_codec, part, step, world))
    (tmp_path / "step-00000002.000002" / "rank-2.json").unlink()  # rank 0 alone checks this file

    def one(world):
        model = part()
        Checkpointer(tmp_path, world, codec=json_codec).load({"model": model})
        return model.value["step"]

    assert ranks(3, one) == [1, 1, 1]


def test_a_folder_that_is_being_deleted_is_no_checkpoint(tmp_path, json_codec, part):
    save(tmp_path, json_codec, part, 1)
    folder = tmp_path / "step-00000001.000001"

    def killed(_):
        raise Killed

    with pytest.raises(Killed):
        manifest.remove(folder, rmtree=killed)
    assert load(tmp_path, json_codec, part)[0] is None
