"""The indicators of the HTML report: a value, its target, and the trend.

The trend compares with the period before. It says better or worse in words, so no colour
is needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.finance import words
from toolkit.finance.measures import spot_saving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from toolkit.config.targets import Targets
    from toolkit.finance.measures import Measures

_SAME_BELOW = Fraction(1, 1000)
"""A smaller change, of the value before or of one, is none."""


class Verdict(StrEnum):
    """The comparison of a value with its target."""

    MET = "met"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Trend:
    """The change since the period before."""

    arrow: str
    text: str
    judgement: str  # better or worse; empty where neither is


@dataclass(frozen=True, slots=True)
class Indicator:
    """A value as the report shows it."""

    name: str
    text: str
    about: str
    target: str = ""  # empty: it has none
    verdict: Verdict | None = None
    trend: Trend | None = None


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of indicator: its value, its text, its target."""

    name: str
    about: str
    value: Callable[[Measures], Fraction | None]
    text: Callable[[Fraction], str]
    target: Callable[[Targets], Fraction] | None = None
    higher_is_better: bool | None = None
    in_points: bool = False  # the trend is a difference in percent, and not a quotient


def indicators(
    now: Measures, before: Mapping[str, Fraction | None] | None, targets: Targets
) -> list[Indicator]:
    """Return all indicators, those with a target first.

    `before` has the values of the period before, by name.
    """
    return [_indicator(kind, now, before, targets) for kind in _KINDS]


def values(measures: Measures) -> dict[str, Fraction | None]:
    """Return the value of each indicator by its name.

    It is None where there is nothing to divide by, or nothing was measured.
    """
    return {kind.name: kind.value(measures) for kind in _KINDS}


def trend(kind: _Kind, now: Fraction | None, before: Fraction | None) -> Trend | None:
    """Return the change; None if one of the values is unknown."""
    if now is None or before is None or (not before and not kind.in_points):
        return None
    change = now - before if kind.in_points else (now - before) / abs(before)
    if abs(change) < _SAME_BELOW:
        return Trend("=", "as before", "")
    amount = f"{words.rounded(abs(change) * 100, 1)}"
    text = f"{amount} points" if kind.in_points else f"{amount} %"
    judgement = ""
    if kind.higher_is_better is not None:
        judgement = "better" if (change > 0) is kind.higher_is_better else "worse"
    return Trend("▲" if change > 0 else "▼", text, judgement)


def _indicator(
    kind: _Kind,
    now: Measures,
    before: Mapping[str, Fraction | None] | None,
    targets: Targets,
) -> Indicator:
    value = kind.value(now)
    target = None if kind.target is None else kind.target(targets)
    return Indicator(
        kind.name,
        _no_value(kind, now) if value is None else kind.text(value),
        kind.about,
        "" if target is None else kind.text(target),
        None if value is None or target is None else _verdict(kind, value, target),
        None if before is None else trend(kind, value, before.get(kind.name)),
    )


def _no_value(kind: _Kind, now: Measures) -> str:
    is_unmeasured = kind is _CHECKPOINTS and now.checkpoints is None
    return words.NOT_MEASURED if is_unmeasured else words.NO_DATA


def _verdict(kind: _Kind, value: Fraction, target: Fraction) -> Verdict:
    is_met = value >= target if kind.higher_is_better else value <= target
    return Verdict.MET if is_met else Verdict.MISSED


def _part(percent: float) -> Fraction:
    return Fraction(str(percent)) / 100


def _seconds(value: int | None) -> Fraction | None:
    return None if value is None else Fraction(value)


_CHECKPOINTS = _Kind(
    "checkpoint reliability",
    "Attempts with a saved checkpoint, of those that were interrupted or asked for a requeue.",
    lambda made: None if made.checkpoints is None else made.checkpoints.value,
    words.percent,
    lambda targets: _part(targets.checkpoint_percent),
    higher_is_better=True,
    in_points=True,
)


def _with_targets() -> Iterator[_Kind]:
    yield _Kind(
        "utilisation",
        "Time of nodes with work of jobs in it, of all their time that was paid.",
        lambda made: made.utilisation.value,
        words.percent,
        lambda targets: _part(targets.utilisation_percent),
        higher_is_better=True,
        in_points=True,
    )
    yield _Kind(
        "success rate",
        "Jobs that completed, of those that completed or failed.",
        lambda made: made.success.value,
        words.percent,
        lambda targets: _part(targets.success_percent),
        higher_is_better=True,
        in_points=True,
    )
    yield _Kind(
        "spot share",
        "Time of spot instances, of the time of all nodes in the cloud.",
        lambda made: made.spot_share.value,
        words.percent,
        lambda targets: _part(targets.spot_share_percent),
        higher_is_better=True,
        in_points=True,
    )
    yield _Kind(
        "queue wait",
        "Median from submission to start, with boots, dependencies and holds.",
        lambda made: _seconds(made.median_wait),
        words.wait,
        lambda targets: Fraction(str(targets.wait_minutes)) * 60,
        higher_is_better=False,
    )
    yield _CHECKPOINTS


def _without_targets() -> Iterator[_Kind]:
    yield _Kind(
        "long queue wait",
        "Nine of ten attempts started within this time.",
        lambda made: _seconds(made.long_wait),
        words.wait,
        higher_is_better=False,
    )
    yield _Kind(
        "cost per GPU-hour",
        "Cost of jobs with GPUs, with their boots, idle time and lost work.",
        lambda made: made.gpu_hour.value,
        words.dollars,
        higher_is_better=False,
    )
    yield _Kind(
        "cost per successful run",
        "The whole cost, for each job that completed.",
        lambda made: made.completed_job.value,
        words.dollars,
        higher_is_better=False,
    )
    yield _Kind(
        "cost per 1,000 experiments",
        "The whole cost, for 1,000 jobs that completed or failed.",
        lambda made: made.experiments.value,
        words.dollars,
        higher_is_better=False,
    )
    yield _Kind(
        "net savings by spot",
        "Against on demand, less lost work and re-boots by interruptions.",
        lambda made: Fraction(spot_saving(made)) if made.spot_share.part else None,
        words.dollars,
        higher_is_better=True,
    )
    yield _Kind(
        "waste",
        "Cost without useful work, of the whole cost.",
        lambda made: Fraction(made.wasted, made.cost) if made.cost else None,
        words.percent,
        higher_is_better=False,
        in_points=True,
    )


_KINDS = (*_with_targets(), *_without_targets())
