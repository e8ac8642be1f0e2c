"""A simulation in words, for the table and the picture."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from slurmplugins.governor.words import duration

if TYPE_CHECKING:
    from toolkit.burst.simulate import Outcome, Simulation

HEADERS = ("AFTER", "BURST", "MEAN WAIT", "MEDIAN", "95 %", "USD", "OVER BUDGET")


def threshold_text(item: Outcome) -> str:
    """Return a threshold as people write it."""
    return "never" if item.after is None else duration(item.after)


def rows(simulation: Simulation) -> list[tuple[str, ...]]:
    """Return a row for each threshold."""
    return [
        (
            threshold_text(item),
            f"{item.bursts} of {item.jobs}",
            duration(item.mean_wait),
            duration(item.median_wait),
            duration(item.p95_wait),
            f"{item.usd:.2f}",
            str(item.over_budget),
        )
        for item in simulation.outcomes
    ]


def period_text(simulation: Simulation) -> str:
    """Return the window and the pair of partitions."""
    return (
        f"{simulation.rack} to {simulation.cloud},"
        f" {_day(simulation.since)} to {_day(simulation.until)} UTC"
    )


def error_text(simulation: Simulation) -> str:
    """Return how far the model is from what happened."""
    error = simulation.error
    if not error.jobs:
        return "no job ran on racks in this time: nothing tells how good the model is"
    return (
        f"model against {error.jobs} real jobs on racks: mean wait"
        f" {duration(error.model_mean_wait)} instead of {duration(error.real_mean_wait)},"
        f" median difference {duration(error.median_error)}"
    )


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
