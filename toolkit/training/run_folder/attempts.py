"""attempts.jsonl: one line an attempt, what it did and what it cost.

SLURM_RESTART_COUNT counts restarts of every kind, launches that failed included, so it says nothing
about why a job came back. This does. Rank 0 is the only writer; a write replaces the whole file,
and is one that only the run's owner can make (fencing.Owner.put).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import encode, read_lines, write_atomic

RUNNING = "running"
LOST = "lost"  # ended without a word: its machines went, or it was killed
HELD = "held"  # its job was held before its workers began

NO_PROGRESS = 3
"""So many attempts that begin at one step are the last."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt. `step_end` is the step that the next one starts with, as far as was known."""

    attempt: int  # 0, 1, … in this run
    job_id: str
    restart_count: int
    started_at: float
    ended_at: float | None
    seconds: float | None
    cause: str  # running | finished | lost | held | error | what the stop request said
    step_start: int | None
    step_end: int | None
    world_size: int  # 0 where no worker has come so far
    nodes: tuple[str, ...]
    instances: tuple[Mapping[str, Any], ...]
    cost_usd: str | None  # estimate: price x seconds x machines; None where no price is known
    detail: str = ""
    rule: str = ""  # what told the cause, and of which edition: `nccl@1`
    held: bool = False  # the job was held after it; whoever released it knew what came before

    @property
    def key(self) -> str:
        """The attempt's name, as `Attempt.key` has it."""
        return f"{self.job_id}.{self.restart_count}"

    @classmethod
    def begun(
        cls,
        attempt: Attempt,
        number: int,
        now: float,
        *,
        world_size: int,
        nodes: tuple[str, ...],
        instances: tuple[Mapping[str, Any], ...],
    ) -> Self:
        """An attempt that runs. It has cost money since its batch script began."""
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
        """Dollars an hour of its machines, an estimate; None where no machine's price is known.

        One that could not be asked costs what the others do: the machines of a job are of one pool.
        """
        known = [price for each in self.instances if (price := _price(each)) is not None]
        machines = max(len(self.nodes), len(self.instances))
        return sum(known, Decimal(0)) * machines / len(known) if known else None

    @property
    def without_a_word(self) -> str:
        """What is said of it when it is found lost."""
        return f"attempt {self.attempt} (job {self.job_id}) ended without a word"

    def awaits(self, key: str) -> bool:
        """Whether it is the attempt of this name, begun by its script and without workers yet."""
        return self.key == key and self.cause == RUNNING and self.world_size == 0

    def ended(self, *, at: float, cause: str, step_end: int, detail: str = "") -> Self:
        """The same attempt, over."""
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

    def until(self, at: float) -> Self:
        """The same attempt, which had its machines until `at` at the least."""
        if self.ended_at is None or at <= self.ended_at:
            return self
        step = self.step_end or 0
        return self.ended(at=at, cause=self.cause, step_end=step, detail=self.detail)


class Ledger:
    """The attempts of one run, in order; the last one may be running."""

    def __init__(self, path: Path, put: Callable[[Path, bytes], None] = write_atomic) -> None:
        self._path, self._put = path, put

    def attempts(self) -> tuple[AttemptRecord, ...]:
        return tuple(_parse(line) for line in read_lines(self._path) if line)

    def begin(self, record: AttemptRecord) -> None:
        """Add an attempt. One that never said how it ended must be closed first."""
        self._write([*self.attempts(), record])

    def update(self, record: AttemptRecord) -> None:
        """Put `record` in place of the last attempt."""
        self._write([*self.attempts()[:-1], record])

    def amend(self, record: AttemptRecord) -> None:
        """Put `record` in place of the attempt of the same number."""
        self._write([record if one.attempt == record.attempt else one for one in self.attempts()])

    def close_lost(self, *, last_seen: float, step_end: int) -> AttemptRecord | None:
        """Close a last attempt that is still `running` although another one has begun."""
        attempts = self.attempts()
        if not attempts or attempts[-1].cause != RUNNING:
            return None
        last = attempts[-1]
        closed = last.ended(at=max(last_seen, last.started_at), cause=LOST, step_end=step_end)
        self.update(closed)
        return closed

    def _write(self, attempts: Sequence[AttemptRecord]) -> None:
        self._put(self._path, b"".join(encode(asdict(attempt)) for attempt in attempts))


def since_release(attempts: Sequence[AttemptRecord]) -> Sequence[AttemptRecord]:
    """The attempts since the job was last held: a person who lets it go gives it a new budget."""
    held = [at for at, attempt in enumerate(attempts) if attempt.held]
    return attempts[held[-1] + 1 :] if held else attempts


def stalled(earlier: Sequence[AttemptRecord], job_id: str, step: int | None) -> bool:
    """Whether the last NO_PROGRESS attempts of this job all began where the next one would begin.

    Where attempts *begin* is what counts: an attempt that is killed before its first checkpoint
    trains steps and still gets the run no further. One that a person requeued says nothing of the
    run. A new job, and one that was held and let go, starts with a new budget.
    Where nobody counts steps, `step` is None and nothing can be said.
    """
    if step is None:
        return False
    ours = [one for one in since_release(earlier) if one.job_id == job_id]
    last = [one for one in ours if one.cause != Cause.REQUEUED][-NO_PROGRESS:]
    return len(last) == NO_PROGRESS and all(attempt.step_start in (None, step) for attempt in last)


def total_cost(attempts: Sequence[AttemptRecord]) -> Decimal | None:
    """The estimate over all attempts; None while no attempt has a price."""
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


def _parse(line: dict[str, Any]) -> AttemptRecord:
    """A line, without the fields that only a later version knows."""
    found = {field.name: line[field.name] for field in fields(AttemptRecord) if field.name in line}
    sequences = {"nodes": tuple(line["nodes"]), "instances": tuple(line["instances"])}
    return AttemptRecord(**found | sequences)


class Cause(StrEnum):
    """The words of the attempt ledger. Each has a budget of its own (retry_budget.py)."""

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
