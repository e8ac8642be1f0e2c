"""Fixtures without torch and without sockets."""

import errno
from pathlib import Path

import pytest

from tests.fakes.training import MemoryTracker, json_codec, part, ranks
from toolkit.training.attempt.attempt import Attempt

__all__ = ["json_codec", "part", "ranks"]


@pytest.fixture
def memory_tracker():
    return MemoryTracker()


@pytest.fixture
def other_filesystem(tmp_path, monkeypatch):
    """A folder from which and to which no rename is possible.

    Links may lead there.
    """
    root, rename = tmp_path / "other-filesystem", Path.replace
    root.mkdir()

    def within_one(path, target):
        if path.resolve().is_relative_to(root) != Path(target).resolve().is_relative_to(root):
            raise OSError(errno.EXDEV, "Invalid cross-device link", path, None, target)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", within_one)
    return root


@pytest.fixture
def attempt_of(tmp_path):
    """A function that makes an attempt with its own run folder.

    By default it is the first attempt of job 12.
    """

    def make(restart_count: int = 0, job_id: str = "12", *, judged: bool = False) -> Attempt:
        return Attempt(
            job_id=job_id,
            restart_count=restart_count,
            run_dir=tmp_path / "run",
            stop_dir=tmp_path / "stop",
            node="gpu-001",
            job_name="digits",
            user="ada",
            account="vision",
            started_at=None,
            judged_by_script=judged,
        )

    return make
