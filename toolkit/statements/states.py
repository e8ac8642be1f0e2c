"""The states of a period, and the changes that each state allows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from toolkit.statements.errors import PeriodStateWrong
from toolkit.statements.log import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolkit.statements.log import LogEntry


class State(StrEnum):
    """A state of a period."""

    OPEN = "open"
    REVIEW = "review"
    CLOSED = "closed"
    FINAL = "final"


_NEXT: Final[Mapping[tuple[State, Change], State]] = {
    (State.OPEN, Change.REVIEW): State.REVIEW,
    (State.REVIEW, Change.REVIEW): State.REVIEW,
    (State.REVIEW, Change.APPROVE): State.REVIEW,
    (State.REVIEW, Change.CLOSE): State.CLOSED,
    (State.REVIEW, Change.REOPEN): State.OPEN,
    (State.CLOSED, Change.REOPEN): State.OPEN,
    (State.CLOSED, Change.FINALIZE): State.FINAL,
}
_HINTS: Final[Mapping[State, str]] = {
    State.OPEN: "begin with `toolkit period review {name}`",
    State.REVIEW: "approve its doubtful rows, then `toolkit period close {name}`",
    State.CLOSED: "a person can open it again: `toolkit period reopen {name} --reason TEXT`",
    State.FINAL: "a final period never changes; what is late becomes a correction in an open one",
}


@dataclass(frozen=True, slots=True)
class PeriodRecord:
    """A period as the log has it."""

    name: str
    state: State = State.OPEN
    revision: int = 0
    """How many times it was closed."""
    closed_at: int | None = None
    digest: str = ""
    approved: Mapping[str, LogEntry] = field(default_factory=dict)
    """The last approval of each doubtful row, by its id."""

    @property
    def is_closed(self) -> bool:
        """Return whether its figures are fixed."""
        return self.state in {State.CLOSED, State.FINAL}


def next_state(record: PeriodRecord, change: Change) -> State:
    """Return the state after a change. Raises PeriodStateWrong."""
    state = _NEXT.get((record.state, change))
    if state is None:
        raise PeriodStateWrong(
            f"{record.name} is {record.state}, so it can't be changed by {change}",
            next_step=_HINTS[record.state].format(name=record.name),
        )
    return state


def history(entries: Iterable[LogEntry]) -> dict[str, PeriodRecord]:
    """Return the period records that a log leads to, by name."""
    records: dict[str, PeriodRecord] = {}
    for entry in entries:
        record = records.get(entry.period, PeriodRecord(entry.period))
        records[entry.period] = _after(record, entry)
    return records


def _after(record: PeriodRecord, entry: LogEntry) -> PeriodRecord:
    record = replace(record, state=next_state(record, entry.change))
    match entry.change:
        case Change.APPROVE:
            approved = {**record.approved, **{name: entry for name, _ in entry.doubts}}
            return replace(record, approved=approved)
        case Change.CLOSE:
            return replace(record, revision=entry.revision, closed_at=entry.at, digest=entry.digest)
        case Change.REOPEN:
            return replace(record, closed_at=None, digest="")
        case _:
            return record
