"""Queue times of jobs. Slurm counts from zero when a job is requeued, so a file remembers them.

The file is small and safe to lose: a job then waits for spot a little longer than necessary.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from slurmplugins.model.json_input import finite, loads
from slurmplugins.state.persistent_clock import PersistentClock
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slurmplugins.system.clock import Clock


KEEP_SECONDS: Final = 7 * 24 * 3600.0
"""Jobs first seen longer ago are forgotten."""


class QueueTimes:
    """The file of queue times."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._persistent_clock = PersistentClock(path.parent, clock)

    def seconds_of(
        self, jobs: Iterable[int], submit_times: Mapping[int, float]
    ) -> dict[int, float]:
        """Return each job's queue time in seconds, and remember it.

        It counts from the submission, or from the first call for the job if that was earlier.
        Raises nothing.
        """
        now = self._persistent_clock.now()
        wall_offset = self._persistent_clock.wall(now) - now
        saved = self._load()
        first_seen = {
            job: min(saved.get(job, now), (submit_times.get(job) or math.inf) - wall_offset, now)
            for job in sorted(jobs)
        }
        remembered = {
            job: seen_at for job, seen_at in saved.items() if 0 <= now - seen_at < KEEP_SECONDS
        }
        if {**remembered, **first_seen} != saved:
            self._save({**remembered, **first_seen})
        return {job: now - seen_at for job, seen_at in first_seen.items()}

    def _load(self) -> dict[int, float]:
        try:
            data = loads(self._path.read_bytes())
            return {int(job): finite(at) for job, at in data.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _save(self, first_seen: Mapping[int, float]) -> None:
        try:
            write_atomically(self._path, json.dumps(first_seen).encode(), mode=0o640)
        except OSError:
            return  # safe to lose: a full disk must not stop a launch
