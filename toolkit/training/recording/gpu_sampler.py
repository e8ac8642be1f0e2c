"""Sample a node's GPUs in a thread on its first rank, and keep the usage in the run's folder.

It needs nvidia-ml-py. A node without a GPU is not sampled. If the GPUs can't be read, the log says
so once. Rank 0 adds the nodes up from their files, so no rank waits for another.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import read_json, write_json
from toolkit.training.run_folder.gpu_usage import usage_files

SAMPLE_SECONDS, WRITE_SECONDS = 5.0, 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one GPU at one moment."""

    utilization: float  # percent of the time in which a kernel ran
    memory_used: int  # bytes
    memory_total: int


@dataclass(frozen=True, slots=True)
class Usage:
    """A sum of many readings."""

    readings: int = 0
    utilization_sum: float = 0.0
    memory_peak: int = 0  # bytes, of one GPU
    memory_total: int = 0

    def plus(self, readings: Sequence[Reading]) -> "Usage":
        """Return the sum with these readings added."""
        return replace(
            self,
            readings=self.readings + len(readings),
            utilization_sum=self.utilization_sum + sum(reading.utilization for reading in readings),
            memory_peak=max([self.memory_peak, *(reading.memory_used for reading in readings)]),
            memory_total=max([self.memory_total, *(reading.memory_total for reading in readings)]),
        )


Probe = Callable[[], Sequence[Reading]]
Warn = Callable[[str], None]


class Sampler:
    """A thread that samples until it is stopped.

    A probe that fails ends it, and the log says so.
    """

    def __init__(
        self, probe: Probe, path: Path, warn: Warn, *, interval: float = SAMPLE_SECONDS
    ) -> None:
        self._probe, self._path, self._warn, self._interval = probe, path, warn, interval
        self._usage = Usage()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, and write the usage so far."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._sample()
        except Exception as error:  # noqa: BLE001
            # A GPU that fell off the bus or a full disk must not end a training run here.
            self._warn(f"GPU usage is no longer recorded: {error!r}")

    def _sample(self) -> None:
        due = WRITE_SECONDS
        while not self._stop.wait(self._interval):
            self._usage = self._usage.plus(self._probe())
            due -= self._interval
            if due <= 0:
                self._write()
                due = WRITE_SECONDS
        self._usage = self._usage.plus(self._probe())
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, asdict(self._usage))


def start(attempt: Attempt, gpu_names: Sequence[str], warn: Warn) -> Sampler | None:
    """Start sampling this node's GPUs, None if that is impossible.

    `gpu_names` are the GPUs that training uses. If there are any, a failure is logged.
    """
    try:
        probe = nvml()
    except Exception as error:  # noqa: BLE001  # no module, no driver, no GPU: training needs none
        if gpu_names:
            warn(f"GPU usage is not recorded; it needs nvidia-ml-py and the driver: {error!r}")
        return None
    return Sampler(probe, attempt.run_dir / "gpus" / f"{attempt.key}.{attempt.node}.json", warn)


def metrics(run_dir: Path, attempt_key: str) -> dict[str, float]:
    """Return the metrics of all nodes of an attempt together.

    They cover what the nodes have written so far. Empty without a GPU.
    """
    usages = [_read_usage(path) for path in usage_files(run_dir, attempt_key)]
    readings = sum(usage.readings for usage in usages)
    if not readings:
        return {}
    peak_usage = max(usages, key=lambda usage: usage.memory_peak)
    return {
        "toolkit.gpu_utilization_percent": sum(u.utilization_sum for u in usages) / readings,
        "toolkit.gpu_memory_peak_mib": peak_usage.memory_peak / 2**20,
        "toolkit.gpu_memory_peak_percent": 100
        * peak_usage.memory_peak
        / max(peak_usage.memory_total, 1),
    }


def nvml(environment: Mapping[str, str] = os.environ) -> Probe:
    """Return a probe of the GPUs that this job may use.

    Raises any error that prevents it, also when there is no GPU.
    """
    import pynvml

    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    if not count:
        raise LookupError("the driver shows no GPU")
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in _visible_indexes(count, environment)]

    def read(handle: Any) -> Reading:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
        return Reading(float(rates.gpu), int(memory.used), int(memory.total))

    return lambda: [read(handle) for handle in handles]


def _visible_indexes(count: int, environment: Mapping[str, str]) -> list[int]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names by number.

    In a job's cgroup the driver shows only the job's GPUs, and their numbers start from 0 again.
    All GPUs if it names none of them.
    """
    numbers = [part.strip() for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    indexes = [int(part) for part in numbers if part.isdigit() and int(part) < count]
    return indexes or list(range(count))


def _read_usage(path: Path) -> Usage:
    try:
        return Usage(**(read_json(path) or {}))
    except TypeError:
        return Usage()
