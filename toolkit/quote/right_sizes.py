"""Runs that followed a recommendation, against the run that was measured before it. Pure.

Both speeds were measured, and both prices are on demand. What was predicted is in no figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from toolkit.quote.measured import MeasuredRun
    from toolkit.quote.predictions import Prediction

    HourOfGpus = Callable[[str, int, int], Fraction | None]
    """Returns the on-demand price of an hour, given an instance type, GPUs and a second."""


@dataclass(frozen=True, slots=True)
class RightSize:
    """A run on the GPUs that were recommended for it."""

    job: str  # its plain number
    started: int  # epoch seconds
    instance_type: str
    ratio: Fraction | None
    """The cost of a sample before, for each dollar that it costs now; None: not known."""

    def as_json(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        ratio = None if self.ratio is None else str(self.ratio)
        return {
            "job": self.job,
            "started": self.started,
            "instance_type": self.instance_type,
            "ratio": ratio,
        }


def from_json(data: Mapping[str, Any]) -> RightSize:
    """Return the run of JSON values."""
    ratio = data["ratio"]
    return RightSize(
        data["job"],
        data["started"],
        data["instance_type"],
        None if ratio is None else Fraction(ratio),
    )


def right_sizes(
    predictions: Sequence[Prediction], runs: Iterable[MeasuredRun], hour_of_gpus: HourOfGpus
) -> tuple[RightSize, ...]:
    """Return the runs that followed, one for each job."""
    found: dict[str, RightSize] = {}
    for run in sorted(runs, key=lambda item: item.started):
        prediction = _followed(predictions, run)
        if prediction is not None and run.job is not None:
            ratio = _ratio(prediction, run, hour_of_gpus)
            job = str(run.job)
            found[job] = RightSize(job, int(run.started), run.instance_type, ratio)
    return tuple(found.values())


def changes_size(prediction: Prediction) -> bool:
    """Return whether it recommended other GPUs than a measured run had."""
    before = (prediction.before_instance_type, prediction.before_gpus)
    return bool(before[0]) and before != (prediction.instance_type, prediction.gpus)


def _followed(predictions: Sequence[Prediction], run: MeasuredRun) -> Prediction | None:
    """Return the last change before a run that names its GPUs."""
    fitting = [
        item
        for item in predictions
        if (item.job_name, item.instance_type, item.gpus)
        == (run.job_name, run.instance_type, run.gpus)
        and item.at < run.started
        and changes_size(item)
    ]
    return max(fitting, key=lambda item: item.at, default=None)


def _ratio(prediction: Prediction, run: MeasuredRun, hour_of_gpus: HourOfGpus) -> Fraction | None:
    at = int(run.started)
    before_usd = hour_of_gpus(prediction.before_instance_type, prediction.before_gpus, at)
    usd = hour_of_gpus(run.instance_type, run.gpus, at)
    before_speed = _speed(prediction.before_samples_per_second)
    speed = _speed(run.samples_per_second)
    if not before_usd or not usd or before_speed is None or speed is None:
        return None
    return before_usd / before_speed / (usd / speed)


def _speed(value: object) -> Fraction | None:
    """Return a measured speed; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Fraction(str(value)) if math.isfinite(value) and value > 0 else None
