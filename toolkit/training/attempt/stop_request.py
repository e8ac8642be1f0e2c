"""Notice a stop request: two files, polled a few times a second at most.

No signal reaches torchrun or its workers. The node agent (spot notice) or the batch script's trap
(time limit) puts a small JSON file in place. Workers see it at the end of a step. The all-reduce
that ends every step makes *all* ranks agree whether they stop, and after which step (see `run`).
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.training.attempt.verdict import Verdict, resume
from toolkit.training.io.durable_files import load_json, path_exists

_LONGEST_AGE = 300.0
"""Seconds by which a request may be older than its attempt: the script begins after its job."""


class Stopped(SystemExit):
    """The exception by which a run stops, to come back later.

    The exit code is 0 when all ranks leave together: the verdict file tells the rest.
    """

    def __init__(self, verdict: Verdict, *, code: int = 0) -> None:
        super().__init__(code)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request that the job stop."""

    cause: str  # why
    deadline: float | None  # epoch seconds when its instance is gone
    node: str

    @property
    def due(self) -> float:
        """Return the deadline in epoch seconds, infinity without one."""
        return float("inf") if self.deadline is None else self.deadline


class StopFiles:
    """A poller of one attempt's stop files.

    Once it has seen a request, its answer stays yes. `attempt_start` is by the clock of the
    requests, epoch seconds.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        attempt_start: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        every_seconds: float = 0.2,
    ) -> None:
        self._paths, self._attempt_start = tuple(paths), attempt_start
        self._clock = clock
        self._poll_seconds = every_seconds
        self._next_poll = float("-inf")
        self._unreadable_paths: set[Path] = set()
        self.request: StopRequest | None = None

    def poll(self) -> bool:
        """Return whether a stop was requested.

        It costs two stat calls, at most once in `every_seconds`. A file that can't be looked at
        counts as absent, and is looked at again.
        """
        if self.request is not None:
            return True
        now = self._clock()
        if now < self._next_poll:
            return False
        self._next_poll = now + self._poll_seconds
        for path in self._paths:
            if self._exists(path) and (fields := self._read(path)) is not None:
                self.request = _parse(fields)
                return True
        return False

    def _read(self, path: Path) -> Mapping[str, Any] | None:
        try:
            return read(path, self._attempt_start)
        except OSError:
            return {}  # a file that exists asks for a stop, readable or not

    def _exists(self, path: Path) -> bool:
        try:
            exists = path_exists(path)
        except OSError as error:
            if path not in self._unreadable_paths:
                _log_line(f"can't look for a stop request, and will look again: {error}")
            self._unreadable_paths.add(path)
            return False
        if not exists:
            self._unreadable_paths.discard(path)
        return exists

    def verdict(self, step: int, detail: str) -> Verdict:
        """Return the verdict of an attempt that the request ends.

        `step` is the number of steps saved.
        """
        return resume(step, self.request.cause if self.request else "stopped", detail)


def read(path: Path, attempt_start: float | None) -> Mapping[str, Any] | None:
    """Return the request in `path` to the attempt that began at `attempt_start`.

    An empty mapping means that there is no request. None means that the request was for an earlier
    job of the same id. Raises OSError when the file can't be read.

    A rebuilt cluster counts its jobs from 1 again, and the shared folder may outlive the old
    cluster. Then requests to the old jobs have the same file names.
    """
    fields = load_json(path, limit=65536) or {}
    requested_at = fields.get("at")
    if attempt_start is None or not isinstance(requested_at, int | float):
        return fields
    return None if requested_at < attempt_start - _LONGEST_AGE else fields


def _log_line(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"[toolkit] {text}\n")
        sys.stderr.flush()


def _parse(fields: Mapping[str, Any]) -> StopRequest:
    """Return the request that a stop file holds.

    A file that exists asks for a stop, even when its content can't be read.
    """
    deadline = fields.get("deadline")
    return StopRequest(
        cause=str(fields.get("cause") or "unreadable-request")[:80],
        deadline=float(deadline) if isinstance(deadline, int | float) else None,
        node=str(fields.get("node") or "")[:80],
    )
