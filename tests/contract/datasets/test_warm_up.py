"""Warming a cache as a job, with stops and exit codes."""

import errno
import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.datasets import tree, write_tree
from toolkit.datasets import dataset
from toolkit.datasets.__main__ import main, warm
from toolkit.datasets.errors import (
    CacheUnusable,
    StoreBusy,
    StoreFailed,
    StoreUnreachable,
    StoreUnset,
)
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.settings import DatasetSettings, read_settings
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import current


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Disk, "sync", lambda self, folder: None)
    dataset_settings = DatasetSettings(
        store=str(tmp_path / "store"), cache_folder=tmp_path / "cache", cache_limit=1 << 20
    )
    catalog = Catalog(FolderStore(tmp_path / "store"))
    for name in ("one", "two"):
        add(catalog, write_tree(tmp_path / name, {"file": name.encode() * 100}), name=name)
    return dataset_settings


@pytest.fixture
def attempt(tmp_path):
    (tmp_path / "run").mkdir()
    return current({"TOOLKIT_RUN_DIR": str(tmp_path / "run"), "SLURM_JOB_ID": "7"})


def test_a_warm_up_fills_the_cache_with_every_reference(settings, attempt, capsys):
    assert warm(["one", "two@1"], settings, attempt, as_json=True) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["fills"], len(stats["entries"])) == (2, 2)
    assert not any(entry["in_use"] for entry in stats["entries"])
    assert warm(["one"], settings, attempt, as_json=True) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["hit_ratio"] == pytest.approx(1 / 3)
    assert "of 3 requests to this cache so far, 33% needed no fill" in output.err


def test_a_warm_up_stops_with_85_and_the_cause_of_the_stop_request(settings, attempt):
    attempt.stop_files[1].write_text('{"cause": "spot-interruption"}')
    assert warm(["one"], settings, attempt, as_json=False) == 85
    recorded = verdict.read(attempt.verdict_file)
    assert (recorded.verdict, recorded.exit_code, recorded.cause) == (
        "resume",
        85,
        "spot-interruption",
    )


@pytest.mark.parametrize(
    ("reference", "change", "cause"),
    [
        ("absent", {}, "data-unknown"),
        ("No Name", {}, "data-name-refused"),
        ("one", {"cache_limit": 10}, "data-cache-too-small"),
        ("one", {"store": None}, "data-store-unset"),
    ],
)
def test_a_warm_up_with_a_wrong_reference_or_setting_is_held_with_93(
    settings, attempt, reference, change, cause
):
    assert warm([reference], replace(settings, **change), attempt, as_json=False) == 93
    assert verdict.read(attempt.verdict_file).cause == cause


def test_a_warm_up_that_finds_the_cache_full_fails_with_1(settings, attempt, tmp_path):
    """Warm two datasets that do not fit together.

    The second one does not evict the first one.
    """
    tight = replace(settings, cache_limit=4 * 4096)
    assert warm(["one", "two"], tight, attempt, as_json=False) == 1
    assert len(tight.node_cache().entries()) == 1


@pytest.fixture
def store_away(monkeypatch):
    """A function that makes the store fail a number of times.

    It returns the list of the job's sleeps.
    """
    slept, real = [], dataset.open_store

    def away(tries, error):
        remaining_failures = iter(range(tries))

        def open_store(url):
            if next(remaining_failures, None) is not None:
                raise error
            return real(url)

        monkeypatch.setattr(dataset, "open_store", open_store)
        return slept

    return away


PASSING = [
    StoreUnreachable("s3://bucket: Connect timeout"),
    StoreBusy("garbage collection is running"),
    OSError(errno.ESTALE, "Stale file handle"),
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_a_warm_up_waits_for_a_store_that_is_unreachable_for_a_moment(
    settings, attempt, store_away, error
):
    slept = store_away(5, error)
    assert warm(["one"], settings, attempt, as_json=False, sleep=slept.append) == 0
    assert sum(slept) == 20


@pytest.mark.parametrize(("restart", "code"), [(0, 85), (4, 85), (5, 1)])
@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_a_warm_up_of_an_unreachable_store_is_requeued_five_times(
    settings, attempt, store_away, *, error, restart, code
):
    slept = store_away(9, error)
    restarted = replace(attempt, restart_count=restart)
    assert warm(["one"], settings, restarted, as_json=False, sleep=slept.append) == code
    assert sum(slept) == 60
    assert verdict.read(restarted.verdict_file).exit_code == code


@pytest.mark.parametrize("restart", [0, 4])
def test_a_warm_up_of_a_store_that_refuses_is_not_retried(settings, attempt, store_away, restart):
    slept = store_away(9, StoreFailed("s3://anothers/data: AccessDenied: Access Denied"))
    restarted = replace(attempt, restart_count=restart)
    assert warm(["one"], settings, restarted, as_json=False, sleep=slept.append) == 1
    assert slept == []


def test_a_warm_up_outside_a_job_does_not_wait(settings, attempt, store_away):
    slept = store_away(1, PASSING[0])
    by_hand = replace(attempt, job_id="local")
    assert warm(["one"], settings, by_hand, as_json=False, sleep=slept.append) == 1
    assert slept == []


def test_a_stop_request_ends_the_wait_for_a_store(settings, attempt, store_away):
    slept = store_away(9, PASSING[0])

    def sleep(seconds):
        slept.append(seconds)
        attempt.stop_files[1].write_text('{"cause": "spot-interruption"}')
        time.sleep(0.25)  # longer than the least time between two looks for a stop request

    assert warm(["one"], settings, attempt, as_json=False, sleep=sleep) == 85
    assert (len(slept), verdict.read(attempt.verdict_file).cause) == (1, "spot-interruption")


def test_a_warm_up_without_a_run_folder_has_only_its_exit_code(settings, attempt, tmp_path):
    away = replace(attempt, run_dir=tmp_path / "none")
    assert warm(["absent"], settings, away, as_json=False) == 93


def test_the_command_reads_store_and_cache_from_the_environment(settings, monkeypatch, capsys):
    monkeypatch.setenv("TOOLKIT_DATA_STORE", settings.store)
    monkeypatch.setenv("TOOLKIT_DATA_CACHE", str(settings.cache_folder))
    monkeypatch.setenv("TOOLKIT_DATA_CACHE_GIB", "0.5")
    assert main(["warm", "one"]) == 0
    assert main(["stats"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["fills"], stats["limit_bytes"]) == (1, 1 << 29)


@pytest.fixture
def fresh(monkeypatch):
    held = {}
    monkeypatch.setattr(dataset, "_held_datasets", held)
    yield
    for held_dataset in held.values():
        held_dataset.release()


def test_dataset_returns_the_same_folder_twice_and_holds_it(settings, monkeypatch, fresh):
    import toolkit.training

    monkeypatch.setenv("TOOLKIT_DATA_STORE", settings.store)
    monkeypatch.setenv("TOOLKIT_DATA_CACHE", str(settings.cache_folder))
    path = toolkit.training.dataset("one")
    assert tree(path) == {"file": b"one" * 100}
    assert toolkit.training.dataset("one") == path
    (version,) = dataset.used_versions().values()
    assert not settings.node_cache().evict(version)


def test_a_dataset_too_large_for_the_node_is_read_from_the_shared_cache(settings, tmp_path):
    both = replace(
        settings,
        cache_limit=10,
        shared_cache_folder=tmp_path / "shared",
        shared_cache_limit=1 << 20,
    )
    held = dataset.hold_dataset("one", both)
    assert held.path.is_relative_to(tmp_path / "shared")


def test_the_shared_cache_is_filled_once_for_all_nodes(settings, tmp_path):
    for node in ("a", "b"):
        one = replace(
            settings,
            cache_folder=tmp_path / node,
            shared_cache_folder=tmp_path / "shared",
            shared_cache_limit=1 << 20,
        )
        assert tree(dataset.hold_dataset("one", one).path) == {"file": b"one" * 100}
    shared = one.shared_cache().stats()
    assert (shared.fills, shared.hits) == (1, 1)


def test_a_cached_version_is_held_without_a_store(settings):
    held = dataset.hold_dataset("one", settings)
    assert dataset.hold_dataset(held.version, replace(settings, store=None)).path == held.path
    with pytest.raises(StoreUnset):
        dataset.hold_dataset("one", replace(settings, store=None))


def test_the_environment_wins_over_the_clusters_settings(tmp_path):
    site = tmp_path / "training.json"
    site.write_text('{"data_store": "s3://bucket/x", "data_cache": "/absent", "data_cache_gib": 3}')
    environment_settings = read_settings(
        {"TOOLKIT_SITE_FILE": str(site), "TOOLKIT_DATA_CACHE": "/mine"}
    )
    assert (
        environment_settings.store,
        str(environment_settings.cache_folder),
        environment_settings.cache_limit,
    ) == (
        "s3://bucket/x",
        "/mine",
        3 << 30,
    )
    with pytest.raises(CacheUnusable):
        read_settings({"TOOLKIT_DATA_CACHE": "/x", "TOOLKIT_DATA_CACHE_GIB": "much"})


def test_a_user_has_a_private_cache_folder_in_the_scratch_space_of_the_cluster(tmp_path):
    """Read the cache folder without and with the nodes' fast disk.

    Without it, the folder is on the root disk.
    """
    site, scratch = tmp_path / "training.json", tmp_path / "scratch"
    site.write_text(json.dumps({"data_cache": str(scratch)}))
    user_folder = f"toolkit-data-{os.getuid()}"
    environment = {"TOOLKIT_SITE_FILE": str(site)}
    assert read_settings(environment).cache_folder == Path("/var/tmp") / user_folder
    scratch.mkdir()
    assert read_settings(environment).cache_folder == scratch / user_folder
    assert stat.S_IMODE((scratch / user_folder).stat().st_mode) == 0o700


def test_a_cache_folder_that_is_a_symbolic_link_is_refused(tmp_path, monkeypatch):
    site = tmp_path / "training.json"
    site.write_text(json.dumps({"data_cache": str(tmp_path)}))
    (tmp_path / "real").mkdir()
    (tmp_path / f"toolkit-data-{os.getuid()}").symlink_to(tmp_path / "real")
    with pytest.raises(CacheUnusable):
        read_settings({"TOOLKIT_SITE_FILE": str(site)})


def test_a_folder_is_added_by_the_datasets_module_alone(settings, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOOLKIT_DATA_STORE", settings.store)
    folder = write_tree(tmp_path / "three", {"file": b"3"})
    assert main(["add", str(folder), "--name", "three"]) == 0
    added = json.loads(capsys.readouterr().out)
    assert Catalog(FolderStore(tmp_path / "store")).resolve("three@1") == added["version"]
    assert main(["add", str(folder / "file"), "--name", "three"]) == 1
    assert "[data" in capsys.readouterr().err
