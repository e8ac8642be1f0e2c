"""Read and write attempts.jsonl: one line an attempt, with its work and its cost.

SLURM_RESTART_COUNT counts restarts of every kind, launches that failed included, so it says nothing
about why a job was requeued. This file does. The batch script writes it before and after the ranks
(start_check, end_of_attempt), and rank 0 in between. A write replaces the whole file, and only the
attempt with the fence can make it (fencing.Fence.write_fenced).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import encode_line, read_lines, write_atomic


class Cause(StrEnum):
    """The causes that end an attempt. All but FINISHED have a retry budget (retry_budget.py)."""

    FINISHED = "finished"
    SPOT = "spot-interruption"
    SCHEDULED = "scheduled-event"
    PREEMPTED = "preemption"
    REQUEUED = "requeued"  # by a person, while it ran
    NODE = "node-failure"
    TRANSIENT = "transient"
    TIME_LIMIT = "time-limit"
    MEMORY = "out-of-memory"
    ERROR = "error"
    CANCELLED = "cancelled"


# These words of the file are no causes: nothing is known of the end, or nothing began.
RUNNING = "running"
LOST = "lost"  # ended without a verdict: it lost its instances, or was killed
HELD = "held"  # the job was held before the attempt's workers began

MAX_ATTEMPTS_WITHOUT_PROGRESS = 3
"""After so many attempts that begin at one step, the job is held."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A line of the file: an attempt."""

    attempt: int  # 0, 1, … in this run
    job_id: str
    restart_count: int
    started_at: float  # epoch seconds
    ended_at: float | None
    seconds: float | None
    cause: str  # a Cause, RUNNING, LOST or HELD; until it is judged, the verdict's word
    step_start: int | None
    step_end: int | None  # the step that the next attempt starts with, as far as was known
    world_size: int  # 0 as long as no worker has started
    nodes: tuple[str, ...]
    instances: tuple[Mapping[str, Any], ...]
    cost_usd: str | None  # estimate: price x seconds x instances; None when no price is known
    detail: str = ""
    rule: str = ""  # the rule that found the cause, and its version: `nccl@1`
    held: bool = False  # the job was held after it; its releaser knew of the earlier attempts

    @property
    def key(self) -> str:
        """Return the attempt's name, the same as `Attempt.key`."""
        return f"{self.job_id}.{self.restart_count}"

    @classmethod
    def at_start(
        cls,
        attempt: Attempt,
        number: int,
        now: float,
        *,
        world_size: int,
        nodes: tuple[str, ...],
        instances: tuple[Mapping[str, Any], ...],
    ) -> Self:
        """Return the record of an attempt that runs.

        It has cost money since its batch script began.
        """
        return cls(
            attempt=number,
            job_id=attempt.job_id,
            restart_count=attempt.restart_count,
            started_at=attempt.started_at or now,
            ended_at=None,
            seconds=None,
            cause=RUNNING,
            step_start=None,
            step_end=None,
            world_size=world_size,
            nodes=nodes,
            instances=instances,
            cost_usd=None,
        )

    @property
    def price(self) -> Decimal | None:
        """Return the estimated dollars an hour of the attempt's instances.

        None when no instance's price is known. An unknown price is taken to be the mean of the
        known ones, for the instances of a job are from one pool.
        """
        prices = [price for instance in self.instances if (price := _price(instance)) is not None]
        instance_count = max(len(self.nodes), len(self.instances))
        return sum(prices, Decimal(0)) * instance_count / len(prices) if prices else None

    @property
    def name(self) -> str:
        """Return the attempt's name in messages."""
        return f"attempt {self.attempt} (job {self.job_id})"

    @property
    def lost_message(self) -> str:
        """Return the message for an attempt that is found lost."""
        return f"{self.name} ended without a verdict"

    def awaits_workers(self, key: str) -> bool:
        """Return whether this is the attempt `key`, still without workers."""
        return self.key == key and self.cause == RUNNING and self.world_size == 0

    def with_end(self, *, at: float, cause: str, step_end: int, detail: str = "") -> Self:
        """Return the record of the same attempt, ended."""
        seconds = max(0.0, at - self.started_at)
        return replace(
            self,
            ended_at=at,
            seconds=round(seconds, 3),
            cause=cause,
            step_end=step_end,
            cost_usd=_cost(self.price, seconds),
            detail=detail,
        )

    def with_later_end(self, at: float) -> Self:
        """Return the same record, with an end of `at` or later.

        The attempt had its instances at least until then.
        """
        if self.ended_at is None or at <= self.ended_at:
            return self
        step = self.step_end or 0
        return self.with_end(at=at, cause=self.cause, step_end=step, detail=self.detail)


class AttemptsFile:
    """The file with the attempts of one run, in order. The last one may be running.

    `write_file` writes it.
    """

    def __init__(
        self, path: Path, write_file: Callable[[Path, bytes], None] = write_atomic
    ) -> None:
        self._path, self._write_file = path, write_file

    def attempts(self) -> tuple[AttemptRecord, ...]:
        return tuple(_parse_record(line) for line in read_lines(self._path) if line)

    def append(self, record: AttemptRecord) -> None:
        """Add an attempt.

        An earlier attempt without an end must be closed first.
        """
        self._write_all([*self.attempts(), record])

    def replace_last(self, record: AttemptRecord) -> None:
        """Replace the last attempt by `record`."""
        self._write_all([*self.attempts()[:-1], record])

    def replace_by_number(self, record: AttemptRecord) -> None:
        """Replace the attempt of the same number by `record`."""
        self._write_all(
            [record if entry.attempt == record.attempt else entry for entry in self.attempts()]
        )

    def close_lost(self, *, last_seen: float, step_end: int) -> AttemptRecord | None:
        """Close a last attempt that is still `running` though another one began.

        Returns its new record, or None when there was none to close.
        """
        attempts = self.attempts()
        if not attempts or attempts[-1].cause != RUNNING:
            return None
        last_record = attempts[-1]
        closed_record = last_record.with_end(
            at=max(last_seen, last_record.started_at), cause=LOST, step_end=step_end
        )
        self.replace_last(closed_record)
        return closed_record

    def _write_all(self, attempts: Sequence[AttemptRecord]) -> None:
        self._write_file(self._path, b"".join(encode_line(asdict(attempt)) for attempt in attempts))


def since_release(attempts: Sequence[AttemptRecord]) -> Sequence[AttemptRecord]:
    """Return the attempts since the job was last held.

    A person who releases a held job gives it a new budget.
    """
    held_indexes = [index for index, attempt in enumerate(attempts) if attempt.held]
    return attempts[held_indexes[-1] + 1 :] if held_indexes else attempts


def without_progress(
    earlier_attempts: Sequence[AttemptRecord], job_id: str, step: int | None
) -> bool:
    """Return whether the job's last attempts all began at one step, `step`.

    MAX_ATTEMPTS_WITHOUT_PROGRESS of them count, each by the step where it *begins*. An attempt that
    is killed before its first checkpoint trains steps and still gets the run no further. One that
    ended before it had a step counts for every step. One that a person requeued is left out. A new
    job starts with a new budget, and so does one that was held and released.

    `step` is None when nothing counts steps. Then the answer is False.
    """
    if step is None:
        return False
    job_attempts = [record for record in since_release(earlier_attempts) if record.job_id == job_id]
    last_attempts = [record for record in job_attempts if record.cause != Cause.REQUEUED][
        -MAX_ATTEMPTS_WITHOUT_PROGRESS:
    ]
    return len(last_attempts) == MAX_ATTEMPTS_WITHOUT_PROGRESS and all(
        attempt.step_start in (None, step) for attempt in last_attempts
    )


def total_cost(attempts: Sequence[AttemptRecord]) -> Decimal | None:
    """Return the estimated dollars of all attempts.

    None as long as no attempt has a price.
    """
    costs = [Decimal(attempt.cost_usd) for attempt in attempts if attempt.cost_usd]
    return sum(costs, Decimal(0)) if costs else None


def _price(instance: Mapping[str, Any]) -> Decimal | None:
    try:
        return Decimal(str(instance["price"]))
    except (KeyError, InvalidOperation):
        return None


def _cost(price: Decimal | None, seconds: float) -> str | None:
    if price is None:
        return None
    cost = price * Decimal(repr(seconds)) / 3600
    return str(cost.quantize(Decimal("0.000001")))


def _parse_record(line: dict[str, Any]) -> AttemptRecord:
    """Return the record of a line, without fields of later versions."""
    values = {field.name: line[field.name] for field in fields(AttemptRecord) if field.name in line}
    sequences = {"nodes": tuple(line["nodes"]), "instances": tuple(line["instances"])}
    return AttemptRecord(**values | sequences)
