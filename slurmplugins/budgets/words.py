"""The state of a budget in words for people. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets.periods import day_of

if TYPE_CHECKING:
    from slurmplugins.budgets.figures import Figures
    from slurmplugins.config.budgets import Budget

NOTE_PREFIX: Final = "toolkit:budget"
"""Begins our line in a job's AdminComment."""


class Cause(Enum):
    """The cause for which a job waits for a budget."""

    TOO_LITTLE = auto()
    SPOT_ONLY = auto()
    NO_TIME_LIMIT = auto()


def payers(budget: Budget) -> str:
    """Return the budget's accounts and projects.

    Such as `account vision and projects a, b`.
    """
    groups = (("account", budget.accounts), ("project", budget.projects))
    return " and ".join(
        f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"
        for kind, names in groups
        if names
    )


def note(item: Figures, cause: Cause = Cause.TOO_LITTLE) -> str:
    """Return the line for a waiting job's AdminComment.

    It has no figure that changes from pass to pass, or each pass would write again.
    """
    if item.ended and cause is Cause.TOO_LITTLE:
        return f"{NOTE_PREFIX} {ended_words(item)}"
    words = f"{NOTE_PREFIX} {item.budget.name}: {payers(item.budget)}"
    if cause is Cause.SPOT_ONLY:
        return f"{words} may use spot partitions alone until {day_of(item.period.end)} UTC"
    words = f"{words} may cost {item.usd:.2f} USD until {day_of(item.period.end)} UTC"
    if cause is Cause.NO_TIME_LIMIT:
        return f"{words}, and the job has no time limit: submit it with --time"
    return f"{words}, and too little is left for the job's whole time limit"


def ended_words(item: Figures) -> str:
    """Return what a person is told of a grant that ended."""
    return (
        f"{item.budget.name}: the grant of {payers(item.budget)} ended on"
        f" {day_of(item.period.end)} UTC, and pays no job"
    )


def refusal(item: Figures) -> str:
    """Return what sbatch says where the budget refuses jobs."""
    if item.ended:
        return ended_words(item)
    return (
        f"{item.budget.name}: {payers(item.budget)} may cost {item.usd:.2f} USD until"
        f" {day_of(item.period.end)} UTC, and no job is taken before"
    )
