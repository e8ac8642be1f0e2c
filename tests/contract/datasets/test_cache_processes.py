"""A cache under real concurrent processes that hold datasets and are killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.datasets import tree, write_tree
from tests.patience import PROGRAM_SECONDS
from toolkit.datasets import chunks
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import CacheFull
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore

pytestmark = pytest.mark.timeout(1800)

FILLER = Path(__file__).with_name("fill_process.py")
REPO = Path(__file__).resolve().parents[3]
CONTENTS = {
    "one": {"a": b"1", "b/c": os.urandom(9000)},
    "two": {"x": os.urandom(20_000), "y": b""},
}
PLENTY = 1 << 24


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 4096)
    catalog = Catalog(FolderStore(tmp_path / "store"))
    for name, content in CONTENTS.items():
        add(catalog, write_tree(tmp_path / name, content), name=name)
    return tmp_path


@pytest.fixture
def start_process(root):
    processes = []

    def start_process(reference, *options, limit=PLENTY):
        argv = [str(FILLER), str(root / "store"), str(root / "cache"), reference, str(limit)]
        process = subprocess.Popen(
            [sys.executable, *argv, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start_process
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def output_words(process):
    return process.communicate(timeout=PROGRAM_SECONDS)[0].split()


def wait_for_file(path):
    deadline = time.monotonic() + PROGRAM_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def checked_entries(root):
    """Return the entries that a reader could see, with checked content."""
    by_size = {sum(map(len, content.values())): content for content in CONTENTS.values()}
    entries = []
    for folder in (root / "cache" / "entries").glob("*"):
        content = tree(folder / "data")
        assert content == by_size[sum(map(len, content.values()))]
        entries.append(folder)
    return entries


def test_one_of_five_processes_fills_the_cache_and_all_hold_the_same_folder(root, start_process):
    processes = [start_process("one") for _ in range(5)]
    outputs = [output_words(process) for process in processes]
    assert sorted(word for word, _ in outputs) == ["filled", *["found"] * 4]
    assert {path for _, path in outputs} == {str(checked_entries(root)[0] / "data")}
    stats = Cache(root / "cache", limit=PLENTY).stats()
    assert (stats.requests, stats.fills, stats.fetched_bytes) == (5, 1, 9001)


@pytest.mark.parametrize("when", ["before", "halfway", "after"])
def test_a_fill_killed_at_any_file_operation_shows_no_wrong_data_and_the_next_one_succeeds(
    root, when
):
    """Fork a process for each file operation, and kill it there.

    SIGKILL leaves no time for clean-up or exceptions.
    """
    from tests.contract.datasets.fill_process import die
    from tests.fakes.disk import MortalDisk

    catalog = Catalog(FolderStore(root / "store"))
    version = catalog.resolve("one")
    manifest = catalog.manifest(version)
    import contextlib

    def hold(disk=None):
        cache = Cache(root / "cache", limit=PLENTY, disk=disk)
        return cache.hold(version, lambda: contextlib.nullcontext((manifest, catalog.store)))

    for fatal in itertools.count():
        child = os.fork()
        if not child:
            try:
                hold(MortalDisk(fatal, when, die))
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        checked_entries(root)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        held = hold()
        assert tree(held.path) == CONTENTS["one"]
        held.release()
        assert Cache(root / "cache", limit=PLENTY).evict(version)
    assert fatal > 15, "fewer operations than there are means that nothing was watched"


def test_a_waiting_process_goes_on_with_the_fill_of_a_killed_one(root, start_process):
    first = start_process("two", "--halt", 11, root / "halted")
    wait_for_file(root / "halted")
    second = start_process("two")
    time.sleep(0.3)
    assert second.poll() is None, "it waits for the first"
    first.send_signal(signal.SIGKILL)
    assert output_words(second)[0] == "filled"
    checked_entries(root)
    fetched = Cache(root / "cache", limit=PLENTY).stats().fetched_bytes
    assert 0 < fetched < 20_000


def test_a_dataset_stays_in_the_cache_until_the_process_that_holds_it_ends(root, start_process):
    small_limit = 9 * 4096 + 4096
    reader = start_process("one", "--keep", limit=small_limit)
    assert reader.stdout.readline().startswith("filled")
    assert output_words(start_process("two", limit=small_limit)) == ["full"]
    checked_entries(root)
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    assert output_words(start_process("two", limit=small_limit))[0] == "filled"
    assert len(checked_entries(root)) == 1


def test_a_forked_loader_keeps_the_dataset_that_its_parent_held(root):
    """Fork a data loader's worker that reads the dataset.

    The dataset stays in the cache while the worker reads.
    """
    import contextlib

    catalog = Catalog(FolderStore(root / "store"))
    version = catalog.resolve("one")
    cache = Cache(root / "cache", limit=PLENTY)
    held = cache.hold(
        version, lambda: contextlib.nullcontext((catalog.manifest(version), catalog.store))
    )
    reading, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(reading[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(reading[0], 1)
    held.release()
    assert not cache.evict(version)
    os.write(done[1], b".")
    os.waitpid(child, 0)
    assert cache.evict(version)
    for end in (*reading, *done):
        os.close(end)


def test_a_warm_up_under_the_bare_interpreter_stops_with_85_and_then_completes(root):
    """Run the warm-up as jobscripts do, with a stop request.

    No third-party package can be imported. The exit codes are 85, then 0.
    """
    (root / "run").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPO),
        "TOOLKIT_DATA_STORE": str(root / "store"),
        "TOOLKIT_DATA_CACHE": str(root / "cache"),
        "TOOLKIT_DATA_CACHE_GIB": "1",
        "TOOLKIT_RUN_DIR": str(root / "run"),
        "SLURM_JOB_ID": "5",
    }
    # -S: no site-packages, so nothing but the standard library can be imported.
    argv = [sys.executable, "-S", "-m", "toolkit.datasets", "warm", "small", "--json"]
    add(
        Catalog(FolderStore(root / "store")),
        write_tree(root / "small", {"a": b"1", "b": b"22"}),
        name="small",
    )
    (root / "run" / "stop.5.0.json").write_text('{"cause": "time-limit"}')
    run = {"env": environment, "cwd": root, "capture_output": True, "text": True, "timeout": 60}
    assert subprocess.run(argv, check=False, **run).returncode == 85
    verdict = json.loads((root / "run" / "verdict.5.0.json").read_text())
    assert (verdict["verdict"], verdict["cause"]) == ("resume", "time-limit")
    again = subprocess.run(
        argv, check=True, **(run | {"env": environment | {"SLURM_RESTART_COUNT": "1"}})
    )
    assert json.loads(again.stdout)["fills"] == 1


def test_hold_raises_on_a_full_cache_instead_of_waiting(root):
    with pytest.raises(CacheFull):
        Cache(root / "cache", limit=1).hold(
            Catalog(FolderStore(root / "store")).resolve("one"), lambda: _opened(root)
        )


def _opened(root):
    import contextlib

    catalog = Catalog(FolderStore(root / "store"))
    return contextlib.nullcontext((catalog.manifest(catalog.resolve("one")), catalog.store))
