"""A run whose attempts have two filesystems, and one tier between them.

The racks have one filesystem, the cloud has the other.
"""

import json
from dataclasses import replace
from itertools import count

import pytest

from tests.fakes.training import MemoryTracker
from toolkit.training import FolderTier, SampleOrder
from toolkit.training.attempt.fencing import UNCLAIMED
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.replication import Replication
from toolkit.training.distributed.process_group import Solo
from toolkit.training.recording.audit import audit, main
from toolkit.training.run import Run, Stopped

ORDER = SampleOrder(size=30, global_batch=8, seed=1)  # four steps an epoch
EPOCHS = 3
WHOLE = sum(  # the sum of a run that stays in one place
    int(sample) * (batch.step + 1)
    for batch in ORDER.batches(step=0, position=0, epochs=EPOCHS, rank=0, world_size=1)
    for sample in batch.ids
)


@pytest.fixture
def train(tmp_path, attempt_of, json_codec, part):
    """A function that runs one attempt in a folder.

    It may stop it at a step.
    """
    ticks = map(float, count(1))

    def train(folder, restart_count, *, stop_at=None, order=ORDER, tier="tier"):
        attempt = replace(attempt_of(restart_count), run_dir=tmp_path / folder)
        model = part({"sum": 0})
        with Run(
            params={},
            seed=1,
            attempt=attempt,
            world=Solo(),
            codec=json_codec,
            tracker=MemoryTracker(),
            tiers=(FolderTier(tmp_path / tier),),
            checkpoint_every=5,
            clock=ticks.__next__,
            timer=ticks.__next__,
        ) as run:
            run.resume(model=model)
            for batch in run.batches(order, EPOCHS):
                if batch.step == stop_at:
                    attempt.stop_dir.mkdir(exist_ok=True)
                    attempt.stop_files[0].write_text('{"cause": "preemption", "deadline": 9e9}')
                model.value["sum"] += sum(int(i) * (batch.step + 1) for i in batch.ids)
                run.step(batch, loss=float(model.value["sum"]))
        return model.value["sum"]

    return train


@pytest.fixture
def moved(train):
    """A run of three attempts: on racks, in the cloud, on racks."""
    for restart_count, (folder, stop_at) in enumerate((("racks", 2), ("cloud", 6))):
        with pytest.raises(Stopped):
            train(folder, restart_count, stop_at=stop_at)
    return train("racks", 2)


def test_a_run_that_goes_to_the_cloud_and_home_trains_on_every_sample_once(moved, tmp_path):
    assert moved == WHOLE
    found = audit(tmp_path / "racks", tmp_path / "cloud")
    assert (found.ok, found.steps, found.epochs_complete) == (True, 12, EPOCHS), found.problems
    assert [record["restart_count"] for record in found.attempts] == [0, 1, 2]
    assert found.resumed_at == (4, 8)


def test_the_audit_of_one_of_the_two_folders_misses_the_steps_of_the_other(moved, tmp_path):
    assert set(audit(tmp_path / "racks").missing) == {4, 5, 6, 7}


def test_the_folders_of_two_runs_are_not_audited_together(moved, train, tmp_path, capsys):
    train("another", 9, order=SampleOrder(size=30, global_batch=8, seed=2), tier="its own")
    capsys.readouterr()
    assert main([str(tmp_path / "racks"), str(tmp_path / "another")]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("another order of samples" in problem for problem in problems)


def test_on_a_new_filesystem_the_run_keeps_its_order_of_samples(train, tmp_path):
    """Resume with another seed where no run.json tells the run's own."""
    with pytest.raises(Stopped):
        train("racks", 0, stop_at=2)
    with pytest.raises(ValueError, match=r"began with .*'seed': 1.*, not with .*'seed': 2"):
        train("cloud", 1, order=SampleOrder(size=30, global_batch=8, seed=2))


def test_of_two_checkpoints_of_one_number_the_further_one_is_the_newest(tmp_path):
    """Two filesystems may each give a number, while the tier is away."""
    names = [f"step-{step:08d}.000008" for step in range(20)]
    replication = Replication((), 2, UNCLAIMED)
    assert replication.list_names(names) == sorted(names, reverse=True)


def test_a_run_that_comes_home_leaves_the_older_checkpoint_of_the_racks(tmp_path, json_codec, part):
    """End a rack attempt before its last save is copied."""
    tier = FolderTier(tmp_path / "tier")

    def checkpointer(folder, *tiers):
        return Checkpointer(tmp_path / folder, Solo(), codec=json_codec, tiers=tiers)

    checkpointer("racks", tier).save({"model": part({"at": 1})}, step=1, facts={})
    checkpointer("racks").save({"model": part({"at": 2})}, step=2, facts={})
    cloud = checkpointer("cloud", tier)
    assert cloud.load({"model": part()}).facts["step"] == 1
    cloud.save({"model": part({"at": 5})}, step=5, facts={})
    model = part()
    assert checkpointer("racks", tier).load({"model": model}).facts["step"] == 5
    assert model.value == {"at": 5}
