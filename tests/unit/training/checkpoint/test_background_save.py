"""A background save is complete, or it is reported as failed."""

import threading

import pytest

from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.tier import FolderTier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed


@pytest.fixture
def slow(json_codec):
    """A codec that writes only after its gate is opened."""

    class Slow(type(json_codec)):
        gate = threading.Event()

        def write(self, folder, staged, world):
            assert self.gate.wait(20)
            return super().write(folder, staged, world)

    return Slow()


def step_in(root, codec, part):
    model = part()
    found = Checkpointer(root, Solo(), codec=codec).load({"model": model})
    return found and model.value["step"]


def test_what_is_saved_is_the_state_at_the_time_of_begin(tmp_path, slow, json_codec, part):
    checkpoints = Checkpointer(tmp_path, Solo(), codec=slow, background=True)
    model = part({"step": 1})
    checkpoints.start_save({"model": model}, step=1, facts={})
    model.value["step"] = 2
    assert checkpoints.committed() == []
    slow.gate.set()
    assert checkpoints.wait_for_save().step == 1
    assert step_in(tmp_path, json_codec, part) == 1


def test_two_background_saves_never_run_at_once(tmp_path, slow, part):
    checkpoints = Checkpointer(tmp_path, Solo(), codec=slow, background=True)
    checkpoints.start_save({"model": part({"step": 1})}, step=1, facts={})
    for another in (checkpoints.start_save, checkpoints.save):
        with pytest.raises(RuntimeError, match="a save is running"):
            another({"model": part({"step": 2})}, step=2, facts={})
    slow.gate.set()
    assert checkpoints.wait_for_save()
    assert checkpoints.wait_for_save() is None


def test_a_failure_is_raised_when_it_is_waited_for_on_every_rank(tmp_path, json_codec, part, ranks):
    class Full(type(json_codec)):
        def write(self, folder, staged, world):
            if world.rank == 1:
                raise OSError(28, "No space left on device")
            return super().write(folder, staged, world)

    def one(world):
        checkpoints = Checkpointer(tmp_path, world, codec=Full(), background=True)
        checkpoints.start_save({"model": part({"step": 1})}, step=1, facts={})
        world.gather("training goes on")
        return checkpoints.wait_for_save()

    results = ranks(2, one)
    assert [type(result) for result in results] == [CheckpointFailed] * 2
    assert list(tmp_path.iterdir()) == []


def test_the_stall_is_told_apart_from_the_save(tmp_path, slow, part):
    now = [0.0]
    checkpoints = Checkpointer(tmp_path, Solo(), codec=slow, background=True, clock=lambda: now[0])
    checkpoints.start_save({"model": part({"step": 1})}, step=1, facts={})
    now[0] = 7.0
    slow.gate.set()
    saved = checkpoints.wait_for_save()
    assert (saved.stall_seconds, saved.seconds) == (0.0, 7.0)
    assert saved.bytes > 0


class Stuck(FolderTier):
    """A tier like S3, with uploads that end only after `gate` opens."""

    def __init__(self, root, *, stuck=True) -> None:
        super().__init__(root, outlives_notice=False)
        self.stuck, self.reached, self.gate = stuck, threading.Event(), threading.Event()

    def push(self, folder, entries):
        self.reached.set()
        if self.stuck:
            assert self.gate.wait(10)
        super().push(folder, entries)


@pytest.mark.parametrize("size", [1, 2])
def test_a_stop_waits_for_no_upload_that_is_under_way_on_any_rank(
    tmp_path, json_codec, part, ranks, size
):
    def one(world):
        tier = Stuck(tmp_path / "far", stuck=world.rank == size - 1)
        near = FolderTier(tmp_path / "other")
        checkpoints = Checkpointer(
            tmp_path / "near", world, codec=json_codec, tiers=(tier, near), background=True
        )
        checkpoints.start_save({"model": part({"step": 1})}, step=1, facts={})
        assert tier.reached.wait(20)
        begun = checkpoints.wait_for_save(urgent=True)
        saved = checkpoints.save({"model": part({"step": 2})}, step=2, facts={}, urgent=True)
        return begun, saved, near.names()

    for begun, saved, near in ranks(size, one):
        assert (begun.step, saved.step) == (1, 2)
        assert "not copied to Stuck: WorkAbandoned: the job must stop first" in begun.problems[0]
        assert sorted(near) == [begun.name, saved.name]
    assert step_in(tmp_path / "near", json_codec, part) == 2


class Silent(FolderTier):
    """A tier like S3 that gets a question and never answers."""

    def __init__(self, root) -> None:
        super().__init__(root, outlives_notice=False)
        self.asked, self.gate, self.answered = threading.Event(), threading.Event(), False

    def names(self):
        self.asked.set()
        self.gate.wait(10)
        self.answered = True
        return super().names()


@pytest.fixture
def silent(tmp_path):
    tier = Silent(tmp_path / "far")
    yield tier
    tier.gate.set()


def test_a_stop_asks_nothing_of_a_tier_that_it_does_not_wait_for(
    tmp_path, json_codec, part, silent
):
    checkpoints = Checkpointer(tmp_path / "near", Solo(), codec=json_codec, tiers=(silent,))
    assert checkpoints.save({"model": part({"step": 1})}, step=1, facts={}, urgent=True)
    assert not silent.asked.is_set()


def test_a_stop_waits_for_no_answer_that_the_save_in_the_background_waits_for(
    tmp_path, json_codec, part, silent
):
    checkpoints = Checkpointer(
        tmp_path / "near", Solo(), codec=json_codec, tiers=(silent,), background=True
    )
    checkpoints.start_save({"model": part({"step": 1})}, step=1, facts={})
    assert silent.asked.wait(10)
    assert checkpoints.wait_for_save(urgent=True).step == 1
    assert not silent.answered
    assert step_in(tmp_path / "near", json_codec, part) == 1
