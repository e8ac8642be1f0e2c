"""The state of an account budget in words for people. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.budgets.ladder import Figures

NOTE_PREFIX: Final = "toolkit:budget"
"""Begins our line in a job's AdminComment."""


def note(item: Figures, *, spot_only: bool = False) -> str:
    """Return the line for a waiting job's AdminComment.

    It has no figure that changes from pass to pass, or each pass would write again.
    """
    words = f"{NOTE_PREFIX} {item.budget.name}: account {item.budget.account}"
    if spot_only:
        return f"{words} may use spot partitions alone until {_day(item.period.end)} UTC"
    return (
        f"{words} may cost {item.usd:.2f} USD until {_day(item.period.end)} UTC, and too little is"
        " left for the job's whole time limit"
    )


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
