"""Stage-in and stage-out: a folder goes into a store, and comes out of it elsewhere."""

import errno
import itertools
import json
import os
from pathlib import Path

import pytest

from tests.fakes.datasets import described, tree, write_tree
from tests.fakes.disk import WHEN, FullDisk, Killed, MortalDisk, QuickDisk
from toolkit.datasets.__main__ import main
from toolkit.datasets.copy_plan import CopyRates
from toolkit.datasets.errors import ContentCorrupt, FolderFull, FolderTaken
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.staging import get, planned_get, planned_put, put
from toolkit.datasets.store.port import object_key
from toolkit.training.attempt import verdict

CONTENT = {"a": b"1", "sub/b": b"22", "same": b"22", "empty": b"", "z": os.urandom(500)}
RUN = {
    "run.json": b"{}",
    "steps.jsonl": b"1\n",
    "result.json": b"{}",
    "checkpoints/step-00000009.000002/shared.pt": b"weights",
    "checkpoints/step-00000009.000002/COMMITTED": b"",
}
UNSHARED = {
    "submission/environment": b"SBATCH_EXPORT=secret",
    "token": b"password",
    "checkpoints/owner/7.0.-.abc/x": b"",
    "checkpoints/step-00000012.000003/shared.pt": b"uncommitted",
    "container.7.0/config.json": b"{}",
}


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path, small_chunks):
    monkeypatch.setattr(Disk, "sync", lambda self, folder: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "memory"))


@pytest.fixture
def site(tmp_path):
    return write_tree(tmp_path / "site" / "data", CONTENT)


def test_a_folder_is_the_same_after_a_way_through_the_store(catalog, site, tmp_path):
    sent = put(catalog, site, "digits")
    came = get(catalog, "digits@1", tmp_path / "home" / "digits")
    assert (sent.reference, sent.version) == ("digits@1", came.version)
    assert tree(tmp_path / "home" / "digits") == CONTENT
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["digits"]
    assert "digits@1 is in" in str(sent)
    assert "5 files, 0.000 GB, all checked; 0.000 GB copied in" in str(came)


def test_the_files_that_came_home_are_the_users_to_change(catalog, site, tmp_path):
    put(catalog, site, "digits")
    get(catalog, "digits", tmp_path / "home")
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def test_a_second_copy_moves_nothing(catalog, site, tmp_path):
    for _ in range(2):
        sent, came = put(catalog, site, "digits"), get(catalog, "digits", tmp_path / "home")
    assert (sent.copied_bytes, came.copied_bytes, sent.reference) == (0, 0, "digits@1")
    assert str(came).endswith("all checked; nothing had to be copied")


def test_other_files_in_the_way_are_left_alone(catalog, site, tmp_path):
    put(catalog, site, "digits")
    home = write_tree(tmp_path / "home", {"mine": b"own work"})
    with pytest.raises(FolderTaken, match="none of it is replaced"):
        get(catalog, "digits", home)
    assert tree(home) == {"mine": b"own work"}


def test_damaged_content_never_becomes_a_folder(catalog, site, store, tmp_path):
    put(catalog, site, "digits")
    key = object_key(next(file for file in described(CONTENT).files if file.path == "z"))
    path = store.root / key
    path.chmod(0o644)
    path.write_bytes(bytes(500))
    with pytest.raises(ContentCorrupt):
        get(catalog, "digits", tmp_path / "home")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("when", WHEN)
def test_a_get_killed_at_any_file_operation_can_be_repeated(catalog, site, tmp_path, when):
    put(catalog, site, "digits")
    for fatal in itertools.count():
        home = tmp_path / f"home-{fatal}" / "digits"
        try:
            get(catalog, "digits", home, disk=MortalDisk(fatal, when))
        except Killed:
            pass
        else:
            break
        assert not home.exists() or tree(home) == CONTENT
        get(catalog, "digits", home, disk=QuickDisk())
        assert tree(home) == CONTENT
        assert [path.name for path in home.parent.iterdir()] == ["digits"]
    assert fatal > 15, "fewer operations than there are means that nothing was watched"


def test_a_full_filesystem_keeps_what_came_and_the_next_get_fetches_the_rest(
    catalog, site, tmp_path
):
    put(catalog, site, "digits")
    with pytest.raises(FolderFull):
        get(catalog, "digits", tmp_path / "home", disk=FullDisk(300))
    came = get(catalog, "digits", tmp_path / "home", disk=QuickDisk())
    assert tree(tmp_path / "home") == CONTENT
    assert came.copied_bytes < sum(map(len, CONTENT.values()))


def test_a_plan_counts_what_is_missing_and_changes_nothing(catalog, site, tmp_path):
    rates = CopyRates()
    assert planned_put(catalog, site, rates).missing_bytes == 503
    assert not list(catalog.store.list(""))
    put(catalog, site, "digits")
    assert planned_put(catalog, site, rates).missing_bytes == 0
    (site / "new").write_bytes(b"333")
    assert planned_put(catalog, site, rates).missing_bytes == 3
    assert planned_get(catalog, "digits", tmp_path / "home", rates).missing_files == 5
    get(catalog, "digits", tmp_path / "home")
    assert planned_get(catalog, "digits", tmp_path / "home", rates).missing_files == 0


# -- the commands of a job


@pytest.fixture
def job(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("TOOLKIT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TOOLKIT_STOP_DIR", str(tmp_path / "stop"))
    monkeypatch.setenv("TOOLKIT_RUNS", str(tmp_path / "cloud"))
    monkeypatch.setenv("TOOLKIT_DATA_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TOOLKIT_DATA_CACHE", str(tmp_path / "cache"))
    return tmp_path


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_a_job_ends_with_one_line_that_says_where_the_data_is(job, site, capsys):
    assert main(["put", str(site), "digits"]) == 0
    assert f"digits@1 is in {job / 'store'}: 5 files" in last_line(capsys)
    assert main(["get", "digits", str(job / "home"), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["place"] == str(job / "home")
    assert "digits is in" in output.err.splitlines()[-1]


def test_the_results_of_a_run_come_home_without_what_is_the_users_alone(job, capsys):
    write_tree(job / "cloud" / "4711", RUN | UNSHARED)
    assert main(["put-run", "4711"]) == 0
    assert main(["get", "run-4711", str(job / "home")]) == 0
    assert tree(job / "home") == RUN


def test_a_run_that_never_was_here_is_no_failure_if_the_chain_says_so(job, capsys):
    assert main(["put-run", "4711"]) == 93
    assert "is not a folder" in capsys.readouterr().err
    assert main(["put-run", "4711", "--missing-ok"]) == 0
    assert "nothing to copy:" in last_line(capsys)
    assert main(["get", "run-4711", str(job / "home"), "--missing-ok"]) == 0


def test_a_job_whose_folder_is_taken_is_not_tried_again(job, site, capsys):
    assert main(["put", str(site), "digits"]) == 0
    write_tree(job / "home", {"mine": b""})
    assert main(["get", "digits", str(job / "home")]) == 93
    assert verdict.read(job / "run" / "verdict.7.0.json").cause == "data-folder-taken"


def test_a_stop_request_ends_a_copy_with_85(job, site):
    (job / "run" / "stop.7.0.json").write_text('{"cause": "time-limit"}')
    assert main(["put", str(site), "digits"]) == 85
    assert verdict.read(job / "run" / "verdict.7.0.json").cause == "time-limit"


def test_a_dry_run_says_what_a_copy_costs_and_what_the_governor_reads(job, site, capsys):
    assert main(["put", str(site), "digits", "--dry-run", "--mbit", "100"]) == 0
    said = capsys.readouterr().err
    assert "would send 4 of 5 files" in said
    assert "--comment=site-data=0.001G" in said
    assert not (job / "store").exists()


def test_a_failing_filesystem_brings_the_job_back(job, site, monkeypatch):
    assert main(["put", str(site), "digits"]) == 0

    def failing(self, path, *, within=None):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Disk, "make_folder", failing)
    monkeypatch.setattr("toolkit.datasets.job.RETRY_PAUSES", ())
    assert main(["get", "digits", str(job / "home")]) == 85
    assert Path(job / "run" / "verdict.7.0.json").exists()
