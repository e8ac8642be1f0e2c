"""The geometry of the HTML report's plots. Pure: numbers in, rectangles out.

A plot is stretched to its place on the page, so its own units are a thousand in each
direction. Text stands beside it, in HTML, and keeps its size.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Final

from toolkit.finance.words import dollars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIZE: Final = 1000
SERIES: Final = 5
"""Accounts with a colour of their own."""
OTHERS, CLUSTER = "other accounts", "cluster, no job"
_CLUSTER_SLOT = SERIES + 1
_DAYS, _WEEKS = 45, 200  # a longer time is drawn by weeks, then by months
_GAP = Fraction(1, 5)  # of a bar's place
_STEPS = (1, 2, 5)
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle with its series and its words."""

    x: float
    y: float
    width: float
    height: float
    series: int
    about: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the scale: its place from the top in percent, and its amount."""

    top: float
    micro: int


@dataclass(frozen=True, slots=True)
class Series:
    """A row of the legend."""

    name: str
    micro: int
    slot: int  # the colour's number


@dataclass(frozen=True, slots=True)
class SpendPlot:
    """Bars of cost over time, stacked by account."""

    rects: tuple[Rect, ...]
    ticks: tuple[Tick, ...]
    labels: tuple[str, ...]  # the first, middle and last bar's
    series: tuple[Series, ...]
    unit: str  # day, week or month


def spend_plot(spend: Mapping[date, Mapping[str, int]]) -> SpendPlot:
    """Return the plot of cost by day and account."""
    series, slots = _series(spend)
    unit, bars = _bars(spend, slots)
    high = max((sum(max(micro, 0) for micro in bar.values()) for bar in bars.values()), default=0)
    low = min((sum(min(micro, 0) for micro in bar.values()) for bar in bars.values()), default=0)
    ticks = _scale(low, high)
    top, bottom = ticks[-1], ticks[0]
    rects: list[Rect] = []
    for position, (name, bar) in enumerate(bars.items()):
        place = _Place(name, position, len(bars), bottom, top)
        rects.extend(_stack(bar, place, series))
    names = list(bars)
    shown = dict.fromkeys((0, len(names) // 2, len(names) - 1)) if names else ()
    return SpendPlot(
        tuple(rects),
        tuple(Tick(_from_top(micro, bottom, top) / SIZE * 100, micro) for micro in ticks),
        tuple(names[position] for position in shown),
        series,
        unit,
    )


def _series(
    spend: Mapping[date, Mapping[str, int]],
) -> tuple[tuple[Series, ...], Mapping[str, int]]:
    """Return the legend, and each account's slot.

    The legend has the dearest accounts, the sum of the others, and the cluster.
    """
    sums: dict[str, int] = defaultdict(int)
    for accounts in spend.values():
        for name, micro in accounts.items():
            sums[name] += micro
    has_cluster, cluster = "" in sums, sums.pop("", 0)
    names = sorted(sums, key=lambda name: (-sums[name], name))
    shown, others = names[:SERIES], names[SERIES:]
    series = [Series(name, sums[name], slot) for slot, name in enumerate(shown)]
    slots = {name: min(slot, SERIES) for slot, name in enumerate(names)}
    if others:
        series.append(Series(OTHERS, sum(sums[name] for name in others), SERIES))
    if has_cluster:
        series.append(Series(CLUSTER, cluster, _CLUSTER_SLOT))
    return tuple(series), {**slots, "": _CLUSTER_SLOT}


def _bars(
    spend: Mapping[date, Mapping[str, int]], slots: Mapping[str, int]
) -> tuple[str, dict[str, dict[int, int]]]:
    """Return the unit of a bar, and the bars by name."""
    days = sorted(spend)
    if not days:
        return "day", {}
    length = (days[-1] - days[0]).days + 1
    unit = "day" if length <= _DAYS else "week" if length <= _WEEKS else "month"
    bars: dict[str, dict[int, int]] = {}
    for offset in range(length):
        bars.setdefault(_name(days[0] + timedelta(offset), unit), defaultdict(int))
    for day, accounts in spend.items():
        for account, micro in accounts.items():
            bars[_name(day, unit)][slots[account]] += micro
    return unit, bars


def _name(day: date, unit: str) -> str:
    if unit == "month":
        return f"{day:%Y-%m}"
    monday = day - timedelta(day.weekday())
    return (day if unit == "day" else monday).isoformat()


def _scale(low: int, high: int) -> list[int]:
    """Return the amounts of the scale, in round steps."""
    reach = max(high - low, 1)
    powers = (10**exponent for exponent in count())
    step = next(
        digit * power for power in powers for digit in _STEPS if digit * power * _TICKS >= reach
    )
    first, last = low // step, -(-high // step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _from_top(micro: int, bottom: int, top: int) -> float:
    return float(Fraction(top - micro, top - bottom) * SIZE)


@dataclass(frozen=True, slots=True)
class _Place:
    """A bar's place, and the scale's lowest and highest amount."""

    name: str
    position: int
    bars: int
    bottom: int
    top: int

    def y(self, micro: int) -> float:
        return _from_top(micro, self.bottom, self.top)


def _stack(bar: Mapping[int, int], place: _Place, series: Sequence[Series]) -> list[Rect]:
    """Return a bar's rectangles: costs up from zero, negative ones down."""
    width = Fraction(SIZE, place.bars)
    x, inner = float(width * place.position + width * _GAP / 2), float(width * (1 - _GAP))
    rects = []
    ends = {True: 0, False: 0}
    for item in series:
        micro = bar.get(item.slot, 0)
        if micro:
            start = ends[micro > 0]
            end = ends[micro > 0] = start + micro
            upper, lower = place.y(max(start, end)), place.y(min(start, end))
            about = f"{place.name}, {item.name}: {dollars(micro)}"
            rects.append(Rect(x, upper, inner, lower - upper, item.slot, about))
    return rects
