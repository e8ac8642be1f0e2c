"""steps.jsonl: one line a step, appended and never rewritten.

A hard kill throws away the steps after the last checkpoint, and the next attempt does them again.
Nothing is cut out of the file: a `resume` line says from which step on the lines above it no longer
count. The record stays right and the lost work stays visible. So does what an attempt still wrote
after the next one had taken over the run.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolkit.training.files import encode, read_lines


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step as it was trained: the sum over the ranks of what each really took."""

    attempt: int
    step: int
    epoch: int
    start: int
    stop: int
    samples: int  # how many samples the ranks took together
    fingerprint: int  # of those (data.fingerprint), summed over the ranks
    at: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Attempt `attempt` went on with step `step`; what was logged at or after it is superseded."""

    attempt: int
    step: int
    at: float


@dataclass(frozen=True, slots=True)
class History:
    """A read step log: the steps that count, those done in vain, and lines cut short by a kill."""

    steps: tuple[StepRecord, ...]
    repeated: tuple[StepRecord, ...]
    resumptions: tuple[Resumption, ...]
    torn: int


class StepLog:
    """The writing end, held by rank 0."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("ab+")
        if self._stream.tell() and not _ends_a_line(path):
            self._stream.write(b"\n")  # the line that a kill cut short stays by itself

    def resume(self, mark: Resumption) -> None:
        self._append({"event": "resume", **asdict(mark)})
        self.sync()

    def step(self, record: StepRecord) -> None:
        line = asdict(record) | {"metrics": dict(record.metrics)}
        self._append({"event": "step", **line})

    def sync(self) -> None:
        """Have everything so far on disk: called before a checkpoint says that it happened."""
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        with self._stream:
            self.sync()

    def _append(self, line: Mapping[str, Any]) -> None:
        self._stream.write(encode(line))
        self._stream.flush()


def read(path: Path) -> History:
    """The step log with its resume lines applied."""
    steps: list[StepRecord] = []
    repeated: list[StepRecord] = []
    marks: list[Resumption] = []
    torn = 0
    for line in read_lines(path):
        entry = _entry(line)
        if entry is None:
            torn += 1
        elif marks and entry.attempt < marks[-1].attempt:
            if isinstance(entry, StepRecord):
                repeated.append(entry)
        elif isinstance(entry, Resumption):
            marks.append(entry)
            repeated += [record for record in steps if record.step >= entry.step]
            steps = [record for record in steps if record.step < entry.step]
        else:
            steps.append(entry)
    return History(tuple(steps), tuple(repeated), tuple(marks), torn)


def _entry(line: dict[str, Any] | None) -> StepRecord | Resumption | None:
    fields = dict(line or {})
    kind = {"step": StepRecord, "resume": Resumption}.get(fields.pop("event", ""))
    try:
        return kind(**fields) if kind else None
    except TypeError:
        return None


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
