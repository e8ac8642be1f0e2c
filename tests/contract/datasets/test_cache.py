"""A node's one copy of a dataset: filled once, held in use, evicted by size."""

import os
import sys
import threading
import time

import pytest

from tests.fakes.datasets import MemorySource, described, tree
from tests.fakes.disk import FullDisk, QuickDisk
from tests.patience import PROGRAM_SECONDS
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import CacheFull, CacheTooSmall, CacheUnusable, DataStopped
from toolkit.datasets.store.manifest import BLOCK

CONTENT = {"a/b": b"1" * 300, "c": b"2"}
OTHERS = [{"one": bytes([number]) * 100} for number in range(4)]
ONE = described(OTHERS[0]).footprint


@pytest.fixture
def make_cache(tmp_path, small_chunks, no_sleep):
    def cache(limit=1 << 20, disk=None, sleep=no_sleep):
        return Cache(tmp_path / "cache", limit=limit, disk=disk or QuickDisk(), sleep=sleep)

    return cache


def hold(cache, content):
    return cache.hold(described(content).version, MemorySource(content).opened)


def test_hold_returns_a_folder_of_read_only_files(make_cache):
    held = hold(make_cache(), CONTENT)
    assert tree(held.path) == CONTENT
    assert {path.stat().st_mode & 0o777 for path in held.path.rglob("*") if path.is_file()} == {
        0o444
    }
    assert held.manifest() == described(CONTENT)


def test_a_second_hold_needs_no_source(make_cache):
    hold(make_cache(), CONTENT)

    def unreachable():
        pytest.fail("the source was asked")

    held = make_cache().hold(described(CONTENT).version, unreachable)
    assert not held.filled
    stats = make_cache().stats()
    assert (stats.hits, stats.fills, stats.hit_ratio) == (1, 1, 0.5)
    assert stats.fetched_bytes == 301


def test_a_fill_fetches_only_the_chunks_that_an_unfinished_fill_lacks(make_cache):
    source = MemorySource({"a": b"1" * 500, "b": b"2" * 500}, flipped=("b",))
    manifest = described({"a": b"1" * 500, "b": b"2" * 500})
    with pytest.raises(Exception, match="b is not what was added"):
        make_cache().hold(manifest.version, source.opened)
    again = MemorySource({"a": b"1" * 500, "b": b"2" * 500})
    assert tree(make_cache().hold(manifest.version, again.opened).path)["b"] == b"2" * 500
    assert again.served == 500 - 3 * 128


def test_the_least_recently_used_dataset_is_evicted_first(make_cache):
    cache = make_cache(limit=3 * ONE)
    for number, content in enumerate(OTHERS[:3]):
        held = hold(cache, content)
        held.release()
        os.utime(cache.root / "locks" / held.version[7:], (number, number))
    hold(cache, OTHERS[0]).release()
    hold(cache, OTHERS[3]).release()
    cached = {entry.version for entry in cache.entries()}
    assert cached == {described(OTHERS[number]).version for number in (0, 2, 3)}
    assert cache.stats().evictions == 1


def test_a_held_dataset_is_not_evicted(make_cache):
    cache = make_cache(limit=2 * ONE)
    held = [hold(cache, OTHERS[0]), hold(cache, OTHERS[1])]
    with pytest.raises(CacheFull):
        hold(cache, OTHERS[2])
    assert [entry.in_use for entry in cache.entries()] == [True, True]
    held[0].release()
    hold(cache, OTHERS[2])
    assert tree(held[1].path) == OTHERS[1]


def test_an_abandoned_fill_is_evicted_to_make_room(make_cache):
    with pytest.raises(DataStopped):
        make_cache(limit=ONE).hold(
            described(OTHERS[0]).version, MemorySource(OTHERS[0]).opened, should_stop=lambda: True
        )
    assert make_cache(limit=ONE).used_bytes == ONE
    assert tree(hold(make_cache(limit=ONE), OTHERS[1]).path) == OTHERS[1]


def test_a_dataset_larger_than_the_cache_is_refused_before_anything_is_evicted(make_cache):
    cache = make_cache(limit=2 * ONE)
    hold(cache, OTHERS[0]).release()
    with pytest.raises(CacheTooSmall):
        hold(cache, {"big": bytes(8 * BLOCK)})
    assert len(cache.entries()) == 1


def test_a_fill_on_a_full_disk_fails_and_frees_its_space(make_cache):
    with pytest.raises(CacheFull):
        hold(make_cache(disk=FullDisk(200)), CONTENT)
    assert (make_cache().used_bytes, make_cache().entries()) == (0, [])


def test_verify_finds_a_damaged_copy_and_removes_it_once_no_job_holds_it(make_cache):
    held = hold(make_cache(), CONTENT)
    assert make_cache().verify(held.version) == []
    path = held.path / "c"
    path.chmod(0o644)
    path.write_bytes(b"3")
    assert make_cache().verify(held.version) == ["c"]
    assert held.path.exists(), "a job holds it"
    held.release()
    assert make_cache().verify(held.version) == ["c"]
    assert make_cache().verify(held.version) is None


def test_a_stop_request_ends_the_wait_for_another_processs_fill(make_cache):
    version = described(CONTENT).version
    filling, release = threading.Event(), threading.Event()

    class Slow(MemorySource):
        def open(self, file):
            filling.set()
            assert release.wait(PROGRAM_SECONDS)
            return super().open(file)

    filler = threading.Thread(target=lambda: make_cache().hold(version, Slow(CONTENT).opened))
    filler.start()
    assert filling.wait(PROGRAM_SECONDS)
    try:
        with pytest.raises(DataStopped):
            make_cache(sleep=lambda _: None).hold(
                version, MemorySource(CONTENT).opened, should_stop=lambda: True
            )
    finally:
        release.set()
        filler.join()


def test_a_hold_that_waited_for_a_fill_is_counted_as_joined(make_cache):
    version = described(CONTENT).version
    filling, waiting = threading.Event(), threading.Event()

    class Slow(MemorySource):
        def open(self, file):
            filling.set()
            assert waiting.wait(PROGRAM_SECONDS)
            return super().open(file)

    # The filler makes its exclusive lock a shared one. The waiting hold may get the lock in
    # between.
    patient = make_cache(sleep=time.sleep)
    filler = threading.Thread(target=lambda: patient.hold(version, Slow(CONTENT).opened).release())
    filler.start()
    assert filling.wait(PROGRAM_SECONDS)
    source = MemorySource(CONTENT)
    held = make_cache(sleep=lambda _: waiting.set()).hold(version, source.opened)
    filler.join()
    assert (source.served, held.filled) == (0, False)
    assert (make_cache().stats().joined, make_cache().stats().fills) == (1, 1)


def test_a_cache_folder_that_can_not_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheUnusable):
        Cache(tmp_path / "file" / "cache", limit=1)


def test_datasets_are_imported_without_any_third_party_package():
    """Import the datasets modules as a warm-up does.

    A warm-up runs under the node's own Python, without click, boto3 and torch.
    """
    import subprocess

    code = (
        "import sys; import toolkit.datasets.__main__, toolkit.datasets.derive.derive;"
        "from toolkit.training import dataset;"
        "print({'click','boto3','botocore','torch','numpy','pydantic','rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
