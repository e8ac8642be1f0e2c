"""Stand-ins without torch and without sockets, by name."""

import pytest

from tests.fakes.training import MemoryTracker, json_codec, part, ranks
from toolkit.training.attempt import Attempt

__all__ = ["json_codec", "part", "ranks"]


@pytest.fixture
def memory_tracker():
    return MemoryTracker()


@pytest.fixture
def attempt_of(tmp_path):
    """An attempt of job 12 in a run folder of its own."""

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
            judged=judged,
        )

    return make
