"""Noticing a stop request: two files, looked at no more than a few times a second.

No signal reaches torchrun or its workers. The node agent (spot notice) or the batch script's trap
(time limit) puts a small JSON file in place; workers see it at the end of a step. Whether *all*
ranks stop, and at which step, is agreed in `run` by the all-reduce that ends every step.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.training.attempt import verdict
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.io.durable_files import find_json, there

_EARLIER = 300.0
"""Seconds by which a request may be older than its attempt: the script begins after its job."""


class Stopped(SystemExit):
    """The run leaves here, to come back later. Exit code 0 where all ranks leave together: the
    verdict file speaks.
    """

    def __init__(self, word: Verdict, *, code: int = 0) -> None:
        super().__init__(code)
        self.word = word


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Why the job is asked to stop, and by when (epoch seconds) its machine is gone."""

    cause: str
    deadline: float | None
    node: str

    @property
    def due(self) -> float:
        """The deadline; infinity where there is none."""
        return float("inf") if self.deadline is None else self.deadline


class StopFiles:
    """Polls the stop files of the attempt that began at a moment, by the clock of the requests.

    Once one is seen the answer stays yes.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        began: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        every_seconds: float = 0.2,
    ) -> None:
        self._paths, self._began = tuple(paths), began
        self._clock = clock
        self._every = every_seconds
        self._next_look = float("-inf")
        self._unseen: set[Path] = set()
        self.request: StopRequest | None = None

    def poll(self) -> bool:
        """Whether a stop was asked for; costs two stat calls, at most once in `every_seconds`.

        What can't be looked at asks for nothing, and is looked at again.
        """
        if self.request is not None:
            return True
        now = self._clock()
        if now < self._next_look:
            return False
        self._next_look = now + self._every
        for path in self._paths:
            if self._there(path) and (found := self._read(path)) is not None:
                self.request = _parse(found)
                return True
        return False

    def _read(self, path: Path) -> Mapping[str, Any] | None:
        try:
            return read(path, self._began)
        except OSError:
            return {}  # a file that is there asks for a stop

    def _there(self, path: Path) -> bool:
        try:
            found = there(path)
        except OSError as error:
            if path not in self._unseen:
                _say(f"can't look for a stop request, and go on looking: {error}")
            self._unseen.add(path)
            return False
        if not found:
            self._unseen.discard(path)
        return found

    def word(self, step: int, detail: str) -> Verdict:
        """The verdict of an attempt that ends because of the request, with so many steps saved."""
        return verdict.resume(step, self.request.cause if self.request else "stopped", detail)


def read(path: Path, began: float | None) -> Mapping[str, Any] | None:
    """What a request says to the attempt that began then, nothing where there is none; None where
    it was for another. OSError where it can't be read.

    A cluster that is built anew counts its jobs from 1, and the shared folder may have outlived the
    one before: its requests are named as this one's are.
    """
    found = find_json(path, limit=65536) or {}
    at = found.get("at")
    if began is None or not isinstance(at, int | float):
        return found
    return None if at < began - _EARLIER else found


def _say(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"[toolkit] {text}\n")
        sys.stderr.flush()


def _parse(found: Mapping[str, Any]) -> StopRequest:
    """A file that is there asks for a stop, even when what it says can't be read."""
    deadline = found.get("deadline")
    return StopRequest(
        cause=str(found.get("cause") or "unreadable-request")[:80],
        deadline=float(deadline) if isinstance(deadline, int | float) else None,
        node=str(found.get("node") or "")[:80],
    )
