"""Read and write steps.jsonl: one line a step, appended and never rewritten.

A hard kill throws away the steps after the last checkpoint, and the next attempt does them again.
No line is removed from the file. A `resume` line says from which step on the lines above it no
longer count. So the record stays right and the lost work stays visible. The same holds for lines
that an attempt writes after the next one has taken over the run.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import encode_line, read_lines

_MAX_PENDING = 200_000  # lines held in memory while the disk takes none: about 60 MB


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step as it was trained."""

    attempt: int
    step: int
    epoch: int
    start: int
    stop: int
    samples: int  # number of samples that the ranks really took, all together
    fingerprint: int  # of those samples (sample_order.fingerprint), summed over the ranks
    at: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resumption:
    """A line that says where an attempt went on.

    The steps logged above it from `step` on no longer count.
    """

    attempt: int
    step: int
    at: float


@dataclass(frozen=True, slots=True)
class History:
    """A read step log."""

    steps: tuple[StepRecord, ...]  # the steps that count
    repeated: tuple[StepRecord, ...]  # steps done in vain
    resumptions: tuple[Resumption, ...]
    torn_lines: int  # number of lines that were cut short


class StepLog:
    """The writer of the step log, on rank 0.

    `warn` is called once when the disk begins to take no step.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        self._warn, self._has_warned = warn, False
        self._pending_lines: deque[bytes] = deque()
        self._stream = path.open("ab", buffering=0)
        self._last_line_is_cut = self._stream.tell() > 0 and not _ends_a_line(path)

    def resume(self, resumption: Resumption) -> None:
        """Write a `resume` line to disk.

        Raises OSError when the disk does not take it: no work is lost if the attempt does not
        begin.
        """
        self._pending_lines.append(encode_line({"event": "resume", **asdict(resumption)}))
        self.sync()

    def step(self, record: StepRecord) -> None:
        """Write a step.

        Raises no error of the disk: lines that it does not take wait, in order, and `sync` fails.
        """
        # The queue is full after hours; then steps are left out, and the audit names them.
        if len(self._pending_lines) < _MAX_PENDING:
            line = asdict(record) | {"metrics": dict(record.metrics)}
            self._pending_lines.append(encode_line({"event": "step", **line}))
        try:
            self._write()
        except OSError as error:
            if not self._has_warned:
                self._warn(
                    f"steps.jsonl can't be written; training goes on, and its lines wait: {error}"
                )
            self._has_warned = True
        else:
            self._has_warned = False

    def sync(self) -> None:
        """Have all lines so far on disk.

        Called before a checkpoint is committed. Raises OSError.
        """
        self._write()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the file.

        Raises no error of the disk. `warn` is called if lines are lost now.
        """
        try:
            with self._stream:
                self.sync()
        except OSError as error:
            self._warn(f"the last steps may not be recorded: {error}")

    def _write(self) -> None:
        while self._pending_lines:
            # A line that a kill or a full disk cut short stays where it is, and is written again.
            line = b"\n" * self._last_line_is_cut + self._pending_lines[0]
            written = self._stream.write(line)
            if written:
                self._last_line_is_cut = not line[:written].endswith(b"\n")
            if written == len(line):
                self._pending_lines.popleft()


def read(path: Path) -> History:
    """Return the step log with its `resume` lines applied.

    It is empty without a file.
    """
    entries = read_entries(path)
    whole_entries = [entry for entry in entries if entry is not None]
    return replace(apply(whole_entries), torn_lines=len(entries) - len(whole_entries))


def read_entries(path: Path) -> list[StepRecord | Resumption | None]:
    """Return the lines of a step log as they stand.

    None stands for a line that was cut short.
    """
    return [_parse_entry(line) for line in read_lines(path)]


def apply(entries: Iterable[StepRecord | Resumption]) -> History:
    """Return the steps that count after all `resume` lines."""
    steps: list[StepRecord] = []
    repeated: list[StepRecord] = []
    resumptions: list[Resumption] = []
    for entry in entries:
        if resumptions and entry.attempt < resumptions[-1].attempt:
            if isinstance(entry, StepRecord):
                repeated.append(entry)
        elif isinstance(entry, Resumption):
            resumptions.append(entry)
            repeated += [record for record in steps if record.step >= entry.step]
            steps = [record for record in steps if record.step < entry.step]
        else:
            steps.append(entry)
    return History(tuple(steps), tuple(repeated), tuple(resumptions), torn_lines=0)


def _parse_entry(line: dict[str, Any] | None) -> StepRecord | Resumption | None:
    values = dict(line or {})
    kind = {"step": StepRecord, "resume": Resumption}.get(values.pop("event", ""))
    try:
        return kind(**values) if kind else None
    except TypeError:
        return None


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
