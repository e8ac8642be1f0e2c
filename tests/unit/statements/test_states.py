"""The state machine of periods."""

from __future__ import annotations

import pytest

from toolkit.statements.errors import PeriodStateWrong
from toolkit.statements.log import Change, LogEntry
from toolkit.statements.states import PeriodRecord, State, history, next_state

ALLOWED = {
    (State.OPEN, Change.REVIEW): State.REVIEW,
    (State.REVIEW, Change.REVIEW): State.REVIEW,
    (State.REVIEW, Change.APPROVE): State.REVIEW,
    (State.REVIEW, Change.CLOSE): State.CLOSED,
    (State.REVIEW, Change.REOPEN): State.OPEN,
    (State.CLOSED, Change.REOPEN): State.OPEN,
    (State.CLOSED, Change.FINALIZE): State.FINAL,
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("change", Change)
def test_each_state_allows_its_changes_and_no_other(state, change):
    record = PeriodRecord("2026-11", state)
    if (state, change) in ALLOWED:
        assert next_state(record, change) is ALLOWED[state, change]
        return
    with pytest.raises(PeriodStateWrong, match=f"2026-11 is {state}") as raised:
        next_state(record, change)
    assert raised.value.next_step


def test_a_log_leads_to_the_records():
    entries = [
        LogEntry(Change.REVIEW, "2026-10", 1, "eve"),
        LogEntry(Change.APPROVE, "2026-10", 2, "eve", "fine", (("ab", "a row"),)),
        LogEntry(Change.CLOSE, "2026-10", 3, "eve", revision=1, digest="d1"),
        LogEntry(Change.REVIEW, "2026-11", 4, "eve"),
        LogEntry(Change.REOPEN, "2026-10", 5, "eve", "wrong"),
        LogEntry(Change.REVIEW, "2026-10", 6, "eve"),
        LogEntry(Change.CLOSE, "2026-10", 7, "eve", revision=2, digest="d2"),
    ]
    records = history(entries)
    october = records["2026-10"]
    assert (october.state, october.revision, october.digest) == (State.CLOSED, 2, "d2")
    assert (october.closed_at, october.is_closed) == (7, True)
    assert october.approved["ab"].reason == "fine"
    assert records["2026-11"].state is State.REVIEW
    assert not records["2026-11"].is_closed
