"""Forecast how long a stop takes, and keep the last forecast in the run's folder.

Only arithmetic and one JSON file. The next submission reads the file to choose its warning time.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from toolkit.training.io.durable_files import read_json, write_json

FILE = "stop-forecast.json"

# Seconds.
NOTICE_SECONDS = 120.0  # from EC2's notice to the end of a spot instance
# From the notice to the node agent's stop request: its poll, its read of the notice, its query.
AGENT_SECONDS = 5.0
NOTICING_SECONDS = AGENT_SECONDS + 0.2  # until the workers know: they poll as well
LEAVING_SECONDS = 12.0  # the last records (10 s at most), the exit, the filesystem's last flush


@dataclass(frozen=True, slots=True)
class StopForecast:
    """The seconds between a notice and the exit, at worst, by their use."""

    noticing: float
    steps: float  # the step that sees the request, and the next, in which all ranks agree
    in_flight: float  # the rest of a save that has just begun, in the background or not
    saving: float  # the save that the stop makes
    leaving: float
    bytes: int  # size of that save

    @property
    def seconds(self) -> float:
        return self.noticing + self.steps + self.in_flight + self.saving + self.leaving

    def problem(self, notice: float = NOTICE_SECONDS) -> str | None:
        """Return what does not fit into the notice, or None.

        `notice` is in seconds.
        """
        if self.seconds <= notice:
            return None
        saving_seconds = self.saving + self.in_flight
        return (
            f"a stop would take {self.seconds:.0f} s and a spot notice gives {notice:.0f}:"
            f" {self.steps:.0f} s for two steps, {saving_seconds:.0f} s for saving"
            f" {self.bytes / 2**30:.1f} GiB"
        )

    def advice(self, notice: float = NOTICE_SECONDS) -> str:
        """Return what to change when the stop does not fit.

        The smallest change comes first.
        """
        if self.steps > self.saving + self.in_flight:
            return "take fewer samples a step; or more ranks, each with fewer"
        changes = []
        if self.in_flight > self.saving and self.seconds - self.in_flight + self.saving <= notice:
            changes.append(
                "save with background=True: a stop leaves its reading back and S3 behind"
            )
        seconds_to_save = notice - self.noticing - self.steps - self.leaving
        if seconds_to_save > 0:
            mib = self.bytes / 2**20
            needed = 2 * mib / seconds_to_save
            changes.append(f"write at {needed:.0f} MiB/s, not {mib / max(self.saving, 1e-9):.0f}")
        changes += [
            "codec=DcpCodec(): every rank writes its share",
            "more ranks, each with less to write",
            "a filesystem with more throughput, or instances with more network",
        ]
        return "; or ".join(changes)

    def warning(self, notice: float = NOTICE_SECONDS) -> str | None:
        """Return the problem and the advice, or None when the stop fits."""
        problem = self.problem(notice)
        return problem and f"{problem}. To change that: {self.advice(notice)}"


def forecast(
    *, step_seconds: float, in_flight_seconds: float, save_seconds: float, saved_bytes: int
) -> StopForecast:
    """Return the forecast for steps and saves as they were measured.

    A stop may come when a save has just begun. It waits for that save, and then makes another one.
    """
    return StopForecast(
        noticing=NOTICING_SECONDS,
        steps=2 * step_seconds,
        in_flight=in_flight_seconds,
        saving=save_seconds,
        leaving=LEAVING_SECONDS,
        bytes=saved_bytes,
    )


@dataclass(frozen=True, slots=True)
class MeasuredForecast:
    """A forecast, and the job that made it."""

    job_id: str
    world_size: int
    forecast: StopForecast

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self | None:
        """Return the record that `write_measured` wrote, None for another version's."""
        try:
            forecast = StopForecast(**values["forecast"])
            return cls(str(values["job_id"]), int(values["world_size"]), forecast)
        except (KeyError, TypeError, ValueError):
            return None


def write_measured(run_dir: Path, forecast: StopForecast, job_id: str, world_size: int) -> None:
    """Write the forecast to the run's folder.

    It replaces that of an earlier attempt.
    """
    write_json(run_dir / FILE, asdict(MeasuredForecast(job_id, world_size, forecast)))


def read_measured(run_dir: Path) -> MeasuredForecast | None:
    """Return a run's forecast, or None before its first save."""
    values = read_json(run_dir / FILE)
    return MeasuredForecast.parse(values) if values else None
