"""A simulation as one SVG file, without scripts, fonts or pictures from elsewhere.

Bars are dollars, the line is the mean wait, a column is a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from slurmplugins.governor.words import duration
from toolkit import assets
from toolkit.burst.text import error_text, period_text, threshold_text

if TYPE_CHECKING:
    from toolkit.burst.simulate import Outcome, Simulation

WIDTH: Final = 760
HEIGHT: Final = 420
LEFT: Final = 90
RIGHT: Final = 670
TOP: Final = 90
BOTTOM: Final = 330
TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class _Column:
    """A threshold in the picture."""

    x: float
    name: str
    bursts: str
    usd_y: float
    wait_y: float
    words: str


@dataclass(frozen=True, slots=True)
class _Tick:
    """A line across the picture, with its value on both scales."""

    y: float
    wait: str
    usd: str


def svg(simulation: Simulation) -> str:
    """Return the picture; every name in it is escaped."""
    highest_wait = max([item.mean_wait for item in simulation.outcomes] + [60.0])
    highest_usd = max([float(item.usd) for item in simulation.outcomes] + [1.0])
    columns = [
        _column(place, item, len(simulation.outcomes), highest_wait, highest_usd)
        for place, item in enumerate(simulation.outcomes)
    ]
    environment = Environment(
        loader=FileSystemLoader(assets.directory("templates") / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("burst.svg.j2").render(
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        top=TOP,
        bottom=BOTTOM,
        title=f"Jobs of {simulation.rack}: wait and dollars by threshold",
        subtitle=period_text(simulation),
        note=error_text(simulation),
        columns=columns,
        points=" ".join(f"{item.x:.1f},{item.wait_y:.1f}" for item in columns),
        ticks=[
            _Tick(
                y=_y(part / TICKS),
                wait=duration(highest_wait * part / TICKS),
                usd=f"{highest_usd * part / TICKS:,.2f}",
            )
            for part in range(TICKS + 1)
        ],
    )


def _column(
    place: int, item: Outcome, count: int, highest_wait: float, highest_usd: float
) -> _Column:
    name = threshold_text(item)
    return _Column(
        x=round(LEFT + (RIGHT - LEFT) * (place + 0.5) / count, 1),
        name=name,
        bursts=f"{item.bursts} burst",
        usd_y=_y(float(item.usd) / highest_usd),
        wait_y=_y(item.mean_wait / highest_wait),
        words=f"{name}: mean wait {duration(item.mean_wait)}, {item.usd:.2f} USD",
    )


def _y(part: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * part, 1)
