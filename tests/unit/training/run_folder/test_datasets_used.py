"""The record of a run has every dataset that any attempt opened."""

import json
from types import SimpleNamespace

import pytest

from toolkit.datasets import dataset
from toolkit.training.attempt import verdict
from toolkit.training.attempt.stop_request import Stopped
from toolkit.training.distributed.process_group import Solo
from toolkit.training.run import Run
from toolkit.training.run_folder import datasets_used

FIRST, SECOND = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture
def shelf(monkeypatch, tmp_path):
    """Dataset names with their versions, without a store or a cache."""
    names = {"digits": FIRST, "labels@1": SECOND}
    monkeypatch.setattr(dataset, "_held_datasets", {})
    monkeypatch.setattr(dataset, "_listeners", [])

    def take(reference, where, **_):
        return SimpleNamespace(version=names[reference], path=tmp_path, filled=False)

    monkeypatch.setattr(dataset, "hold_dataset", take)
    return names


@pytest.fixture
def run(attempt_of, json_codec, memory_tracker):
    def make(restart_count=0, world=None):
        memory_tracker.closed = False
        return Run(
            params={},
            seed=1,
            attempt=attempt_of(restart_count),
            world=world or Solo(),
            codec=json_codec,
            tracker=memory_tracker,
        )

    return make


def test_every_dataset_that_is_opened_is_tagged_by_its_digest(shelf, run, memory_tracker, part):
    dataset.dataset("labels@1")  # scripts may open a dataset before the run begins
    with run() as one:
        one.resume(model=part())
        assert memory_tracker.tags["toolkit.dataset"] == SECOND
        dataset.dataset("digits")
        assert memory_tracker.tags["toolkit.dataset"] == f"{FIRST},{SECOND}"
        assert memory_tracker.tags["toolkit.dataset_asked"] == "digits,labels@1"
    kept = json.loads((one.dir.path / "datasets.json").read_text())
    assert kept == {"digits": [FIRST], "labels@1": [SECOND]}
    assert dataset._listeners == []  # an ended run listens no more


def test_a_run_whose_dataset_was_not_there_before_a_stop_comes_back(run, part, attempt_of):
    """Write the verdict, which no earlier code could write."""

    def script():
        with run() as one:
            one.resume(model=part())
            raise Stopped(verdict.resume(0, "spot-interruption"), code=85)

    with pytest.raises(Stopped):
        script()
    word = verdict.read(attempt_of().verdict_file)
    assert (word.verdict, word.exit_code, word.cause) == ("resume", 85, "spot-interruption")


def test_a_run_says_how_much_of_its_data_was_there(shelf, run, memory_tracker, part):
    with run() as one:
        one.resume(model=part())
        dataset.dataset("digits")
        dataset.dataset("labels@1")
        dataset._held_datasets["labels@1"].filled = True
    found = [dict(record.metrics) for record in memory_tracker.records if record.metrics]
    assert [m["toolkit.data_hit_ratio"] for m in found if "toolkit.data_hit_ratio" in m] == [0.5]


def test_a_run_that_opens_nothing_says_nothing(shelf, run, memory_tracker, part):
    with run() as one:
        one.resume(model=part())
    assert "toolkit.dataset" not in memory_tracker.tags
    assert not any("toolkit.data_hit_ratio" in dict(one.metrics) for one in memory_tracker.records)
    assert not (one.dir.path / "datasets.json").exists()


def test_a_name_that_moved_between_attempts_is_reported_and_both_are_kept(
    shelf, run, memory_tracker, part, capsys
):
    with run() as one:
        one.resume(model=part())
        dataset.dataset("digits")
    dataset._held_datasets.clear()
    shelf["digits"] = SECOND
    with run(restart_count=1) as two:
        two.resume(model=part())
        dataset.dataset("digits")
    assert datasets_used.changed_names(datasets_used.read(two.dir.path)) == ["digits"]
    assert memory_tracker.tags["toolkit.dataset"] == f"{FIRST},{SECOND}"
    assert "dataset digits has another version than" in capsys.readouterr().out


def test_what_other_ranks_alone_have_opened_is_recorded_at_the_end(
    shelf, run, memory_tracker, part
):
    class Two(Solo):
        def gather(self, value):
            return [value, {"labels@1": SECOND}] if value == {} else [value]

    with run(world=Two()) as one:
        one.resume(model=part())
    assert memory_tracker.tags["toolkit.dataset"] == SECOND
