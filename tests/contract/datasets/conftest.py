"""A catalog in a folder, with a clock that is moved by hand."""

import time
from dataclasses import dataclass

import pytest

from tests.fakes.disk import QuickDisk
from toolkit.datasets import chunks
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore


@dataclass
class Clock:
    """Begins at the real time: the files of a folder store have real times."""

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
    """Files of a few hundred bytes have several chunks."""
    monkeypatch.setattr(chunks, "CHUNK", 128)


@pytest.fixture
def no_sleep():
    def sleep(_):
        pytest.fail("nobody else is at work, and yet there was a wait")

    return sleep
