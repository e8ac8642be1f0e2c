"""Files that exist, absent files, and errors that prove neither."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest

from tests.fakes import checkpoint_disk as disk
from toolkit import training
from toolkit.training.io.durable_files import (
    list_folder,
    path_exists,
    read_json,
    read_lines,
    write_atomic,
    write_first,
)
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.sample_order import SampleOrder

# Modules that take "absent" as a reason to start anew, to delete, or to end the job.
_DECIDING = (
    *("attempt/fencing", "attempt/job_log", "attempt/stop_request", "attempt/verdict"),
    *("checkpoint/background_save", "checkpoint/checkpointer", "checkpoint/collective"),
    *("checkpoint/dcp_codec", "checkpoint/folders", "checkpoint/hashed_file"),
    *("checkpoint/local_disk", "checkpoint/manifest", "checkpoint/replication"),
    *("checkpoint/s3_tier", "checkpoint/save_schedule", "checkpoint/tier"),
    *("checkpoint/torch_codec", "requeue/end_of_attempt", "requeue/previous_attempts"),
    *("requeue/start_check", "run_folder/attempts", "run_folder/checkpoint_names"),
    "run_folder/run_folder",
)
# From Python 3.14 these take every error for "absent". A glob always has.
_GULLIBLE = re.compile(
    r"\.(exists|is_file|is_dir|is_symlink|glob|rglob|walk)\(|os\.path\.(l?exists|is\w+)"
)


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError(5, "Input/output error")])
def test_a_filesystem_error_does_not_mean_that_a_file_is_absent(tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    disk.swallow_errors(monkeypatch)
    for name in ("stat", "listdir", "scandir"):
        monkeypatch.setattr(os, name, fails)
    for ask in (path_exists, list_folder, checkpoint_names.last_step):
        with pytest.raises(OSError, match=error.strerror):
            ask(tmp_path)


def test_an_absent_file_is_reported_as_absent(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file" / "none"):
        assert (path_exists(path), list_folder(path), checkpoint_names.last_step(path)) == (
            False,
            [],
            None,
        )
    assert path_exists(tmp_path / "file")
    assert list_folder(tmp_path) == [tmp_path / "file"]


@pytest.mark.parametrize("name", _DECIDING)
def test_no_module_that_decides_asks_in_a_way_that_takes_an_error_for_a_no(name):
    text = (Path(training.__file__).parent / f"{name}.py").read_text()
    assert _GULLIBLE.findall(text) == []


def test_no_error_of_any_one_call_takes_from_a_run_what_it_is_known_by(tmp_path):
    for number in count(1):
        run = RunFolder(tmp_path / str(number))
        run.create()
        run.agree_order(SampleOrder(30, 8, 1), 1)
        key = run.key
        calls = [*disk.CALLS, (Path, "read_bytes")]
        with disk.strike(number, disk.fail, calls) as met, suppress(OSError):
            run.agree_order(SampleOrder(30, 8, 1), 2)
        assert run.key == key
        if len(met) < number:
            break
    assert number > 5


def test_two_threads_that_replace_a_file_at_once_both_succeed(tmp_path, monkeypatch):
    both_wrote = Barrier(2, timeout=60)
    sync = os.fsync

    def slow_sync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            both_wrote.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_sync)
    path = tmp_path / "verdict.json"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write_atomic, [path, path], [b"first", b"second"]))
    assert path.read_bytes() in {b"first", b"second"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.json"
    write_atomic(path, b"1")
    write_atomic(path, b"2")
    assert path.read_bytes() == b"2"
    assert not write_first(path, b"3")
    assert path.read_bytes() == b"2"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_what_is_no_object_reads_as_none(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b'{"a": 1}\n[2]\n{"b"\n\n{"c": 3}')
    assert list(read_lines(path)) == [{"a": 1}, None, None, {"c": 3}]
    assert read_json(path) is None
