"""A catalog in a folder, with a clock that the test sets."""

import time
from dataclasses import dataclass

import pytest

from tests.fakes.disk import QuickDisk
from toolkit.datasets import chunks
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore


@dataclass
class Clock:
    """A clock that begins at the real time and stands still.

    A folder store's files have real times.
    """

    now: float

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock(time.time())


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store", disk=QuickDisk())


@pytest.fixture
def catalog(store, clock):
    return Catalog(store, clock=clock)


@pytest.fixture
def small_chunks(monkeypatch):
    """A small chunk size: files of 200 bytes have two chunks."""
    monkeypatch.setattr(chunks, "CHUNK", 128)


@pytest.fixture
def no_sleep():
    def sleep(_):
        pytest.fail("nobody else is at work, and yet there was a wait")

    return sleep
