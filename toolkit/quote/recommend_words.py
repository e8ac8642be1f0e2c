"""The reasoning of a recommendation as text for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.output import counted
from toolkit.quote.gpus import gpu_of
from toolkit.quote.recommend import LOW_USE

if TYPE_CHECKING:
    from toolkit.quote.measured import MeasuredRun
    from toolkit.quote.predictions import PredictionError
    from toolkit.quote.recommend import Choice


def speed(choice: Choice, run: MeasuredRun | None) -> str:
    """Return how fast the training is expected to be, and why."""
    if run is None or choice.samples_per_second is None:
        return "no run measured the speed: GPUs are compared by the peak of their data sheets"
    used = gpu_of(run.instance_type)
    is_same = used is not None and used.name == choice.gpu
    scaled = "" if is_same else " scaled by the peak of the data sheets,"
    return (
        f"expected: {choice.samples_per_second:.4g} samples a second, from the"
        f" {run.samples_per_second:.4g} of job {run.job} on {counted(run.gpus, 'GPU')} of"
        f" {run.instance_type};{scaled} twice the GPUs are taken to be twice as fast"
    )


def use(run: MeasuredRun | None) -> str:
    """Return what the measured use of the GPUs tells."""
    if run is None or run.utilization is None:
        return "no run measured how busy the GPUs are"
    busy = f"its GPUs were busy {run.utilization:.0f} % of the time"
    if run.utilization < LOW_USE:
        return f"{busy}: look for what they wait for before you take faster ones"
    return busy


def past(error: PredictionError | None) -> str:
    """Return how wrong earlier predictions were."""
    if error is None:
        return "past predictions: no run came after one yet"
    parts = [f"memory {_error(error.memory, error.memory_runs)}"]
    parts.append(
        "speed not measured"
        if error.speed is None
        else f"speed {_error(error.speed, error.speed_runs)}"
    )
    return f"past predictions: {', '.join(parts)}"


def _error(median: float, runs: int) -> str:
    size = f"{abs(median):.0%} too {'high' if median > 0 else 'low'}" if median else "right"
    return f"{size} (median of {counted(runs, 'run')})"
