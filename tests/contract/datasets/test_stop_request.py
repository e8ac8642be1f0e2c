"""Stop requests to a training script that is fetching its datasets.

The script exits with the code that has its job requeued.
"""

import json
from pathlib import Path

import pytest

from tests.fakes.datasets import tree, write_tree
from tests.fakes.training import JsonCodec, Part
from toolkit.datasets import dataset as dataset_module
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.settings import read_settings
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.training import Stopped, dataset, derived
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import current
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import Solo
from toolkit.training.run_folder.run_folder import RunFolder


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The test's process as an attempt, with its own store and cache."""
    monkeypatch.setattr(Disk, "sync", lambda self, folder: None)
    (tmp_path / "run").mkdir()
    for name, value in {
        "SLURM_JOB_ID": "7",
        "TOOLKIT_RUN_DIR": tmp_path / "run",
        "TOOLKIT_STOP_DIR": tmp_path / "stop",
        "TOOLKIT_DATA_STORE": tmp_path / "store",
        "TOOLKIT_DATA_CACHE": tmp_path / "cache",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(dataset_module, "_held_datasets", {})
    yield current()
    for held in dataset_module._held_datasets.values():
        held.release()


@pytest.fixture
def version(job, tmp_path):
    return add(Catalog(FolderStore(tmp_path / "store")), write_tree(tmp_path / "raw", {"x": b"1"}))


def ask_to_stop(attempt):
    attempt.stop_files[0].parent.mkdir(exist_ok=True)
    attempt.stop_files[0].write_text(json.dumps({"cause": "spot-interruption"}))


def test_a_stop_request_during_a_fill_ends_the_script_with_85_and_the_verdict_resume(job, version):
    ask_to_stop(job)
    with pytest.raises(Stopped) as stopped:
        dataset(version.version)
    assert stopped.value.code == 85  # no rank waits longer for this one
    # A script's `except Exception` must not take the stop for an error of the dataset.
    assert not isinstance(stopped.value, Exception)
    recorded = verdict.read(job.verdict_file)
    assert recorded == stopped.value.verdict
    assert (recorded.verdict, recorded.exit_code, recorded.cause) == (
        "resume",
        85,
        "spot-interruption",
    )
    job.stop_files[0].unlink()
    assert tree(dataset(version.version)) == {"x": b"1"}


def derive_from(version):
    derived([version], lambda *_: pytest.fail("it was built of what was not there"))


@pytest.mark.parametrize("work", [dataset, derive_from])
def test_a_stop_request_ends_the_wait_for_another_ranks_fill_or_build(job, version, work):
    cache = read_settings().node_cache()
    with Lock(cache.root / "locks" / version.version.removeprefix("sha256:")) as another:
        assert another.try_exclusive()
        ask_to_stop(job)
        with pytest.raises(Stopped):
            work(version.version)
    assert verdict.read(job.verdict_file).verdict == "resume"


def test_a_cached_dataset_is_returned_despite_a_stop_request(job, version):
    """Take a cached dataset while a stop is requested.

    The run reads the request at its first step, and saves.
    """
    dataset(version.version)
    dataset_module._held_datasets.popitem()[1].release()
    ask_to_stop(job)
    assert tree(dataset(version.version)) == {"x": b"1"}
    assert not job.verdict_file.exists()


def test_the_verdict_has_the_step_of_the_last_checkpoint(job, version):
    root = RunFolder(job.run_dir).checkpoints
    Checkpointer(root, Solo(), codec=JsonCodec()).save({"model": Part()}, step=40, facts={})
    ask_to_stop(job)
    with pytest.raises(Stopped):
        dataset(version.version)
    assert verdict.read(job.verdict_file).step == 40


def test_a_stop_without_a_run_folder_has_only_the_exit_code_85(job, version, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_RUN_DIR", str(tmp_path / "none"))
    ask_to_stop(job)
    with pytest.raises(Stopped) as stopped:
        dataset(version.version)
    assert (stopped.value.code, Path(tmp_path / "none").exists()) == (85, False)
