"""Copies of checkpoints in tiers: as good as the first, or none."""

import shutil
from pathlib import Path

import pytest

from toolkit.training.checkpoint import tier as tier_module
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.tier import FolderTier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, CheckpointUnreadable
from toolkit.training.run_folder.checkpoint_names import save_number


@pytest.fixture
def near(tmp_path):
    return tmp_path / "nvme"


@pytest.fixture
def far(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def checkpointer(near, far, json_codec):
    def make(world=None, **options):
        tiers = options.pop("tiers", (FolderTier(far),))
        return Checkpointer(near, world or Solo(), codec=json_codec, tiers=tiers, **options)

    return make


@pytest.fixture
def saved(checkpointer, part):
    def save(*steps):
        for step in steps:
            found = checkpointer().save({"model": part({"step": step})}, step=step, facts={})
        return found

    return save


def loaded_step(checkpointer, part):
    model = part()
    found = checkpointer().load({"model": model})
    return found and model.value["step"]


def test_an_instance_that_is_gone_with_its_disk_costs_nothing(near, checkpointer, part, saved):
    saved(1, 2)
    shutil.rmtree(near)
    assert loaded_step(checkpointer, part) == 2


def test_after_the_disk_is_gone_no_number_is_given_twice(near, saved):
    saved(1, 2)
    shutil.rmtree(near)
    assert saved(2).name == "step-00000002.000003"


@pytest.mark.parametrize("first", ["it saved", "it looked for one to load"])
def test_a_stop_that_asks_no_tier_gives_no_number_twice_either(
    near, far, checkpointer, part, first
):
    """Save urgently without a call to the tier.

    The save number must be higher than all in the tier. The Checkpointer remembers its earlier
    names, and the copies it has made since.
    """
    checkpointer().save({"model": part()}, step=1, facts={})
    checkpoints = checkpointer(tiers=(FolderTier(far, outlives_notice=False),))
    if first == "it saved":
        checkpoints.save({"model": part()}, step=2, facts={})
    else:
        shutil.rmtree(near)
        checkpoints.load({"model": part()})
    known = max(save_number(path.name) for path in far.iterdir())
    shutil.rmtree(near)
    found = checkpoints.save({"model": part()}, step=3, facts={}, urgent=True)
    assert save_number(found.name) == known + 1


def test_a_near_copy_that_went_bad_is_mended_from_the_far_one(near, checkpointer, part, saved):
    saved(1, 2)
    (near / "step-00000002.000002" / "shared.json").write_bytes(b"{}")
    assert loaded_step(checkpointer, part) == 2
    shutil.rmtree(near.parent / "shared")
    assert loaded_step(checkpointer, part) == 2


def test_both_copies_bad_is_the_one_before(near, far, checkpointer, part, saved):
    saved(1, 2)
    for root in (near, far):
        path = root / "step-00000002.000002" / "shared.json"
        path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    assert loaded_step(checkpointer, part) == 1


def test_a_tier_keeps_as_many_as_the_first_place(near, far, saved):
    saved(1, 2, 3, 4)
    assert {p.name for p in near.iterdir()} == {p.name for p in far.iterdir()}
    assert len(list(far.iterdir())) == 2


def test_a_copy_that_arrived_wrong_is_made_again_before_an_older_one_goes(
    near, checkpointer, part, saved, monkeypatch
):
    saved(1)
    copy, spoilt = tier_module.copy_file, []

    def badly_once(source, entry, target):
        copy(source, entry, target)
        if not spoilt:
            spoilt.append(entry.name)
            content = (target / entry.name).read_bytes()
            (target / entry.name).write_bytes(bytes([content[0] ^ 1]) + content[1:])

    monkeypatch.setattr(tier_module, "copy_file", badly_once)
    assert saved(2).problems == ()
    assert spoilt
    shutil.rmtree(near)
    assert loaded_step(checkpointer, part) == 2


class Away(FolderTier):
    """A tier that can't be reached."""

    def names(self):
        raise OSError(112, "Host is down")

    push = commit = lambda *_: (_ for _ in ()).throw(OSError(112, "Host is down"))


def test_a_tier_that_is_away_costs_its_copy_and_says_so(far, checkpointer, part):
    checkpoints = checkpointer(tiers=(Away(far),))
    found = checkpoints.save({"model": part({"step": 1})}, step=1, facts={})
    assert "Host is down" in found.problems[0]
    assert [path.name for path in checkpoints.committed()] == [found.name]


def test_a_tier_that_is_away_is_no_reason_to_begin_anew(far, checkpointer, part, saved):
    with pytest.raises(CheckpointFailed, match="Host is down"):
        loaded_step(lambda: checkpointer(tiers=(Away(far),)), part)
    saved(1)
    assert loaded_step(lambda: checkpointer(tiers=(Away(far),)), part) == 1


def test_a_tier_that_is_away_is_no_reason_to_begin_at_an_older_one(
    near, far, checkpointer, part, saved
):
    saved(1)
    (near / saved(2).name / "shared.json").write_text("damaged")
    with pytest.raises(CheckpointUnreadable, match="Host is down"):
        loaded_step(lambda: checkpointer(tiers=(Away(far),)), part)
    assert loaded_step(lambda: checkpointer(tiers=(Away(far), FolderTier(far))), part) == 2


def test_a_stop_waits_only_for_tiers_that_outlive_the_notice(tmp_path, far, checkpointer, part):
    slow = FolderTier(tmp_path / "slow", outlives_notice=False)
    checkpoints = checkpointer(tiers=(FolderTier(far), slow))
    checkpoints.save({"model": part({"step": 1})}, step=1, facts={}, urgent=True)
    assert FolderTier(far).names() == ["step-00000001.000001"]
    assert slow.names() == []


def test_a_copy_that_was_cut_short_is_gone_on_with(near, far, saved):
    name = saved(1).name
    (far / name / "COMMITTED").unlink()
    (far / name / "shared.json").write_bytes(b"{")
    before = (far / name / "rank-0.json").stat().st_ino
    tier, folder = FolderTier(far), near / name
    assert tier.names() == []
    from toolkit.training.checkpoint import manifest

    tier.push(folder, manifest.read(folder).files)
    tier.commit(folder)
    assert tier.names() == [name]
    assert (far / name / "rank-0.json").stat().st_ino == before  # the file was not copied again
    manifest.verify(far / name)


def half_done(far, number):
    folder = far / f"step-{number:08}.{number:06}"
    folder.mkdir(parents=True)
    (folder / "shared.json").write_bytes(b"{")
    return folder.name


def test_copies_left_half_done_go_with_the_next_commit_of_a_newer_one(far, saved):
    """Commit newer copies beside an unfinished one.

    The unfinished copy has no use any more, and it costs money.
    """
    half = half_done(far, 1)
    kept = [saved(step).name for step in (2, 3)]
    assert half not in kept
    assert sorted(path.name for path in far.iterdir()) == kept


def test_a_copy_half_done_that_is_newer_than_every_commit_stays(far, checkpointer, part):
    """Save beside a newer unfinished copy, which a later attempt has begun.

    The later attempt resumes the copy.
    """
    checkpoints = checkpointer()
    checkpoints.save({"model": part()}, step=1, facts={})
    newer = half_done(far, 9)
    for step in (2, 3, 4):
        checkpoints.save({"model": part()}, step=step, facts={})
    assert FolderTier(far).unfinished() == [newer]


def test_ranks_share_the_copying_and_the_fetching(near, far, json_codec, part, ranks):
    def save(world):
        checkpoints = Checkpointer(near, world, codec=json_codec, tiers=(FolderTier(far),))
        return checkpoints.save({"model": part({"step": 1})}, step=1, facts={})

    def load(world):
        model = part()
        Checkpointer(near, world, codec=json_codec, tiers=(FolderTier(far),)).load({"model": model})
        return model.value["step"]

    ranks(3, save)
    shutil.rmtree(near)
    assert ranks(2, load) == [1, 1]


def test_a_folder_that_only_one_rank_sees_is_an_error_on_all(tmp_path, json_codec, part, ranks):
    """Save into a folder of each rank's own.

    A node's own disk is no folder that all ranks share.
    """

    def save(world):
        root = tmp_path / f"nvme-{world.rank}"
        checkpoints = Checkpointer(root, world, codec=json_codec)
        return checkpoints.save({"model": part({"step": 1})}, step=1, facts={})

    assert [type(result) for result in ranks(2, save)] == [CheckpointFailed] * 2
    assert not list(Path(tmp_path).rglob("COMMITTED"))
