"""How long jobs have waited. Slurm counts anew whenever a job is requeued, so this is remembered.

A small file that is safe to lose: a job then waits for spot a little longer than it had to.
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


class Waits:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._steady = Steady(path.parent, clock)

    def of(self, jobs: Iterable[int], submitted: Mapping[int, float]) -> dict[int, float]:
        """Seconds since each job was submitted, or first seen here if that was earlier."""
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
            return  # discardable by design: a full disk must not stop a launch
