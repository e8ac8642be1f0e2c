"""A cache under real processes that come at once, hold, and are killed with SIGKILL."""

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
from toolkit.datasets import chunks
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import CacheFull
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore

pytestmark = pytest.mark.timeout(240)

FILLER = Path(__file__).with_name("fill_process.py")
REPO = Path(__file__).resolve().parents[3]
CONTENTS = {
    "one": {"a": b"1", "b/c": os.urandom(9000)},
    "two": {"x": os.urandom(20_000), "y": b""},
}
PLENTY = 1 << 24
SECONDS = 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 4096)
    catalog = Catalog(FolderStore(tmp_path / "store"))
    for name, content in CONTENTS.items():
        add(catalog, write_tree(tmp_path / name, content), name=name)
    return tmp_path


@pytest.fixture
def start(place):
    begun = []

    def begin(reference, *options, limit=PLENTY):
        argv = [str(FILLER), str(place / "store"), str(place / "cache"), reference, str(limit)]
        process = subprocess.Popen(
            [sys.executable, *argv, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def came_to(process):
    return process.communicate(timeout=SECONDS)[0].split()


def until(path):
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def visible(place):
    """Every entry that a reader could see, checked."""
    by_size = {sum(map(len, content.values())): content for content in CONTENTS.values()}
    found = []
    for folder in (place / "cache" / "entries").glob("*"):
        there = tree(folder / "data")
        assert there == by_size[sum(map(len, there.values()))]
        found.append(folder)
    return found


def test_one_of_five_processes_fills_the_cache_and_all_hold_the_same_folder(place, start):
    begun = [start("one") for _ in range(5)]
    ended = [came_to(process) for process in begun]
    assert sorted(word for word, _ in ended) == ["filled", *["found"] * 4]
    assert {path for _, path in ended} == {str(visible(place)[0] / "data")}
    counted = Cache(place / "cache", limit=PLENTY).stats()
    assert (counted.requests, counted.fills, counted.fetched_bytes) == (5, 1, 9001)


@pytest.mark.parametrize("when", ["before", "halfway", "after"])
def test_a_fill_killed_at_any_file_operation_shows_no_wrong_data_and_the_next_one_succeeds(
    place, when
):
    """Each in a process of its own, forked here: SIGKILL, no clean-up, no exception."""
    from tests.contract.datasets.fill_process import die
    from tests.fakes.disk import MortalDisk

    catalog = Catalog(FolderStore(place / "store"))
    version = catalog.resolve("one")
    manifest = catalog.manifest(version)
    import contextlib

    def hold(disk=None):
        cache = Cache(place / "cache", limit=PLENTY, disk=disk)
        return cache.hold(version, lambda: contextlib.nullcontext((manifest, catalog.store)))

    for fatal in itertools.count():
        child = os.fork()
        if not child:
            try:
                hold(MortalDisk(fatal, when, die))
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        visible(place)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        held = hold()
        assert tree(held.path) == CONTENTS["one"]
        held.release()
        assert Cache(place / "cache", limit=PLENTY).evict(version)
    assert fatal > 15, "fewer operations than there are means that nothing was watched"


def test_a_waiting_process_goes_on_with_the_fill_of_a_killed_one(place, start):
    first = start("two", "--halt", 11, place / "halted")
    until(place / "halted")
    second = start("two")
    time.sleep(0.3)
    assert second.poll() is None, "it waits for the first"
    first.send_signal(signal.SIGKILL)
    assert came_to(second)[0] == "filled"
    visible(place)
    fetched = Cache(place / "cache", limit=PLENTY).stats().fetched_bytes
    assert 0 < fetched < 20_000


def test_a_dataset_stays_in_the_cache_until_the_process_that_holds_it_ends(place, start):
    tight = 9 * 4096 + 4096
    reader = start("one", "--keep", limit=tight)
    assert reader.stdout.readline().startswith("filled")
    assert came_to(start("two", limit=tight)) == ["full"]
    visible(place)
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    assert came_to(start("two", limit=tight))[0] == "filled"
    assert len(visible(place)) == 1


def test_a_forked_loader_keeps_the_dataset_that_its_parent_held(place):
    """A data loader's worker is a fork: while it reads, the dataset stays."""
    import contextlib

    catalog = Catalog(FolderStore(place / "store"))
    version = catalog.resolve("one")
    cache = Cache(place / "cache", limit=PLENTY)
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


def test_a_warm_up_under_the_bare_interpreter_stops_with_85_and_then_completes(place):
    """As jobscripts run it: no package of the toolkit's own, a stop request, exit 85, then 0."""
    (place / "run").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPO),
        "TOOLKIT_DATA_STORE": str(place / "store"),
        "TOOLKIT_DATA_CACHE": str(place / "cache"),
        "TOOLKIT_DATA_CACHE_GIB": "1",
        "TOOLKIT_RUN_DIR": str(place / "run"),
        "SLURM_JOB_ID": "5",
    }
    # -S: no site-packages, so nothing but the standard library can be imported.
    argv = [sys.executable, "-S", "-m", "toolkit.datasets", "warm", "small", "--json"]
    add(
        Catalog(FolderStore(place / "store")),
        write_tree(place / "small", {"a": b"1", "b": b"22"}),
        name="small",
    )
    (place / "run" / "stop.5.0.json").write_text('{"cause": "time-limit"}')
    run = {"env": environment, "cwd": place, "capture_output": True, "text": True, "timeout": 60}
    assert subprocess.run(argv, check=False, **run).returncode == 85
    verdict = json.loads((place / "run" / "verdict.5.0.json").read_text())
    assert (verdict["verdict"], verdict["cause"]) == ("resume", "time-limit")
    again = subprocess.run(
        argv, check=True, **(run | {"env": environment | {"SLURM_RESTART_COUNT": "1"}})
    )
    assert json.loads(again.stdout)["fills"] == 1


def test_hold_raises_on_a_full_cache_instead_of_waiting(place):
    with pytest.raises(CacheFull):
        Cache(place / "cache", limit=1).hold(
            Catalog(FolderStore(place / "store")).resolve("one"), lambda: _opened(place)
        )


def _opened(place):
    import contextlib

    catalog = Catalog(FolderStore(place / "store"))
    return contextlib.nullcontext((catalog.manifest(catalog.resolve("one")), catalog.store))
