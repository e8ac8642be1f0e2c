"""The record of predictions: what `toolkit recommend` said, and how wrong it was.

It is a file of JSON lines for each cluster on the person's computer, and it only grows. A
prediction is held against each later run of the same job name on the same number of those GPUs.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from toolkit.quote.errors import QuoteError
from toolkit.quote.gpus import gpu_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.quote.measured import MeasuredRun

FOLDER_VARIABLE: Final = "TOOLKIT_PREDICTIONS"
_FOLDER: Final = Path("toolkit") / "predictions"  # below the user's state folder


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of one moment."""

    at: float
    job_name: str
    gpu: str
    gpus: int
    memory_mib: float  # of each GPU
    samples_per_second: float | None
    usd_per_hour: float
    instance_type: str = ""  # lines of an earlier toolkit have none, nor what follows
    before_instance_type: str = ""  # of the run that was measured before; empty: none was
    before_gpus: int = 0
    before_samples_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class PredictionError:
    """The median error of past predictions; above 0: too much was predicted."""

    memory: float
    memory_runs: int
    speed: float | None
    speed_runs: int


def record_path(cluster: str) -> Path:
    """Return the file of a cluster."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder) / f"{cluster}.jsonl"
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / _FOLDER / f"{cluster}.jsonl"


def add(path: Path, prediction: Prediction) -> None:
    """Append a prediction. Raises QuoteError."""
    append(path, asdict(prediction))


def read(path: Path) -> list[Prediction]:
    """Return all predictions; a line that can't be read is none."""
    predictions = []
    for line in lines(path):
        try:
            prediction = Prediction(**line)
        except TypeError:
            continue
        if _is_sound(prediction):
            predictions.append(prediction)
    return predictions


def _is_sound(prediction: Prediction) -> bool:
    """Return whether its moment, its GPUs and its figures can be compared."""
    counts = (prediction.gpus, prediction.before_gpus)
    figures = (prediction.at, prediction.memory_mib, prediction.samples_per_second or 0)
    words = (prediction.instance_type, prediction.before_instance_type)
    return (
        all(isinstance(item, (int, float)) for item in figures)
        and all(isinstance(item, int) and item >= 0 for item in counts)
        and all(isinstance(item, str) for item in words)
    )


def append(path: Path, values: Mapping[str, Any]) -> None:
    """Append a line to a record. Raises QuoteError."""
    line = json.dumps(values, sort_keys=True) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise QuoteError(f"can't record it in {path}: {error.strerror}") from error


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record that are JSON objects. Raises QuoteError."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise QuoteError(f"can't read {path}: {error.strerror}") from error
    objects = []
    for text in texts:
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            if isinstance(value, dict):
                objects.append(value)
    return objects


def error(predictions: Sequence[Prediction], runs: Iterable[MeasuredRun]) -> PredictionError | None:
    """Return the median error; None where no run came after a prediction."""
    memory, speed = [], []
    for run in runs:
        predicted = _before(predictions, run)
        if predicted is None:
            continue
        memory.append(predicted.memory_mib / run.memory_mib - 1)
        if predicted.samples_per_second and run.samples_per_second:
            speed.append(predicted.samples_per_second / run.samples_per_second - 1)
    if not memory:
        return None
    return PredictionError(
        median(memory), len(memory), median(speed) if speed else None, len(speed)
    )


def _before(predictions: Sequence[Prediction], run: MeasuredRun) -> Prediction | None:
    """Return the last prediction before a run, for its GPUs."""
    gpu = gpu_of(run.instance_type)
    fitting = [
        item
        for item in predictions
        if gpu is not None
        and (item.job_name, item.gpu, item.gpus) == (run.job_name, gpu.name, run.gpus)
        and item.at < run.started
    ]
    return max(fitting, key=lambda item: item.at, default=None)
