"""Data loaders of trainers that read a run's samples.

Only a trainer's own adapter needs the trainer's package.
"""

import importlib
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from toolkit.training.adapters.data_loader import Feed, sample_count
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import PackageMissing, Unsupported
from toolkit.training.run import Run
from toolkit.training.sample_order import SampleOrder, fingerprint

ORDER = SampleOrder(size=30, global_batch=8, seed=1)  # steps of 8, 8, 8 and 6


@dataclass
class Going:
    """A run that is at a step."""

    step_count: int = 0
    world: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(rank=0, size=1))


def trained(feed, run, count):
    """Take the pieces of the next `count` steps and return their batches."""
    loader, steps = iter(feed), []
    while len(steps) < count:
        piece = next(loader)
        batch = feed.end_piece()
        assert piece
        if batch is not None:
            run.step_count = batch.step + 1
            steps.append(batch)
    return steps


def going(step=0, rank=0, size=1):
    return Going(step, SimpleNamespace(rank=rank, size=size))


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_an_epoch_has_every_sample_once_over_all_ranks_and_pieces(ranks, pieces):
    shares = []
    for rank in range(ranks):
        run = going(rank=rank, size=ranks)
        feed = Feed(run, ORDER, pieces=pieces, from_epoch_start=True)
        assert len(list(feed)) == len(feed)
        shares.append(trained(feed, run, 4))
    for step in zip(*shares, strict=True):
        assert sum(fingerprint(batch.mine) for batch in step) == fingerprint(step[0].ids)
        assert sum(len(batch.mine) for batch in step) == len(step[0].ids)
    taken = sorted(int(i) for share in shares for batch in share for i in batch.mine)
    assert taken == list(range(30))


def test_a_run_that_goes_on_gets_the_steps_that_an_undisturbed_one_would():
    run = going()
    feed = Feed(run, ORDER, pieces=2, from_epoch_start=False)
    whole = [*trained(feed, run, 4), *trained(feed, run, 4)]
    for begun in range(8):
        run = going(step=begun)
        rest = trained(Feed(run, ORDER, pieces=2, from_epoch_start=False), run, 4 - begun % 4)
        for expected, batch in zip(whole[begun:], rest, strict=False):
            assert (batch.step, batch.epoch) == (expected.step, expected.epoch)
            assert list(batch.mine) == list(expected.mine)


def test_pieces_that_a_trainer_skips_are_not_taken_for_trained():
    run = going(step=2)
    feed = Feed(run, ORDER, pieces=2, from_epoch_start=True)
    loader = iter(feed)
    skipped = [next(loader) for _ in range(4)]
    pieces = [next(loader), next(loader)]
    assert feed.end_piece() is None
    batch = feed.end_piece()
    assert batch.step == 2
    assert list(batch.mine) == pieces[0] + pieces[1]
    assert not {*batch.mine} & {sample for piece in skipped for sample in piece}


def test_a_last_step_with_less_than_a_sample_for_each_rank_is_refused():
    with pytest.raises(Unsupported, match="fewer samples than there are ranks") as caught:
        Feed(going(size=7), ORDER, pieces=1, from_epoch_start=True)
    assert caught.value.next_step


def test_data_without_a_length_is_refused():
    with pytest.raises(Unsupported, match="has no length"):
        sample_count(SimpleNamespace(batch_sampler=None, dataset=iter(())))


@pytest.mark.parametrize(
    ("adapter", "packages"),
    [("huggingface", ("transformers",)), ("lightning", ("lightning", "pytorch_lightning"))],
)
def test_a_missing_package_is_logged_with_what_to_install(monkeypatch, adapter, packages):
    for package in packages:
        for name in [each for each in sys.modules if each.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"toolkit.training.adapters.{adapter}", raising=False)
    with pytest.raises(PackageMissing) as caught:
        importlib.import_module(f"toolkit.training.adapters.{adapter}")
    assert caught.value.reason == "adapter-package-missing"
    assert caught.value.exit_code == 2
    assert f"slurm-ec2-toolkit[{adapter}]" in caught.value.next_step


def test_the_training_library_loads_no_trainer():
    code = (
        "import sys, toolkit.training.run, toolkit.training.adapters.data_loader\n"
        "print([n for n in ('torch', 'transformers', 'lightning') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_logged_belongs_to_the_step_that_has_just_ended(
    attempt_of, json_codec, memory_tracker, part
):
    run = Run(
        params={}, seed=1, attempt=attempt_of(), world=Solo(), codec=json_codec,
        tracker=memory_tracker,
    )  # fmt: skip
    with run:
        run.resume(model=part())
        for batch in run.batches(ORDER, 1):
            run.step(batch)
        run.log({"accuracy": 0.75})
        run.finish()
    logged = [(r.step, r.metrics) for r in memory_tracker.records if "accuracy" in r.metrics]
    assert logged == [(3, {"accuracy": 0.75})]
