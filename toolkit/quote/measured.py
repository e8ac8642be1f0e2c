"""Measurements of earlier runs: GPUs, memory, use, speed. Pure.

MLflow has it (docs/training.md, "What is recorded").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurmplugins.head.mlflow import MlflowRun

_HARDWARE: Final = re.compile(r"(\d{1,6}) x ([^,]{1,80})", re.ASCII)
MEMORY: Final = "toolkit.gpu_memory_peak_mib"
USE: Final = "toolkit.gpu_utilization_percent"
SPEED: Final = "toolkit.samples_per_second"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that measured its GPUs."""

    job_name: str
    job: int | None
    started: float
    instance_type: str
    gpus: int
    memory_mib: float  # the peak of one GPU
    utilization: float | None  # percent
    samples_per_second: float | None

    @property
    def gib(self) -> float:
        """Return the memory over all of its GPUs."""
        return self.gpus * self.memory_mib / 1024


def measured_run(run: MlflowRun) -> MeasuredRun | None:
    """Return what a run measured; None if it measured no GPU."""
    memory = run.metrics.get(MEMORY)
    counts = {
        name: int(count) for count, name in _HARDWARE.findall(run.tags.get("toolkit.hardware", ""))
    }
    types = [name for name in counts if "." in name and " " not in name]
    gpus = sum(count for name, count in counts.items() if name not in types)
    if not memory or not gpus or len(types) != 1:
        return None
    return MeasuredRun(
        job_name=run.name.rpartition(" ")[0] or run.name,
        job=run.job,
        started=run.started or 0.0,
        instance_type=types[0],
        gpus=gpus,
        memory_mib=memory,
        utilization=run.metrics.get(USE),
        samples_per_second=run.metrics.get(SPEED),
    )


def measured_runs(runs: Iterable[MlflowRun], job_name: str) -> list[MeasuredRun]:
    """Return a job name's measured runs, the newest first."""
    own_runs = [item for run in runs if (item := measured_run(run)) and item.job_name == job_name]
    return sorted(own_runs, key=lambda item: -item.started)
