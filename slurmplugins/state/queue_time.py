"""Queue times of jobs. Slurm counts from zero when a job is requeued, so a file remembers them.

The file is small and safe to lose: a job then waits for spot a little longer than necessary.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from slurmplugins.model.json_input import finite, loads
from slurmplugins.state.persistent_clock import Steady
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slurmplugins.system.clock import Clock


KEEP_SECONDS: Final = 7 * 24 * 3600.0
"""Jobs first seen longer ago are forgotten."""


class Waits:
    """The file of queue times."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._steady = Steady(path.parent, clock)

    def of(self, jobs: Iterable[int], submitted: Mapping[int, float]) -> dict[int, float]:
        """Return each job's queue time in seconds, and remember it.

        It counts from the submission, or from the first call for the job if that was earlier.
        Raises nothing.
        """
        now = self._steady.now()
        ahead = self._steady.wall(now) - now
        before = self._load()
        since = {
            job: min(before.get(job, now), (submitted.get(job) or math.inf) - ahead, now)
            for job in sorted(jobs)
        }
        kept = {job: at for job, at in before.items() if 0 <= now - at < KEEP_SECONDS}
        if {**kept, **since} != before:
            self._save({**kept, **since})
        return {job: now - at for job, at in since.items()}

    def _load(self) -> dict[int, float]:
        try:
            data = loads(self._path.read_bytes())
            return {int(job): finite(at) for job, at in data.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _save(self, since: Mapping[int, float]) -> None:
        try:
            write_atomically(self._path, json.dumps(since).encode(), mode=0o640)
        except OSError:
            return  # safe to lose: a full disk must not stop a launch
