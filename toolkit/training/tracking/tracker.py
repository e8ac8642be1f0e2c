"""Send a run's records to a tracking server, from a thread that training never waits for.

One MLflow run holds all attempts of a run: its id stays in the run folder. While the server is away
records wait in memory. At the end of the attempt they wait in a file. The next attempt sends them
first, or the batch script if the run has ended. Only the run's owner sends records and writes these
files. A superseded attempt does neither.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from toolkit.training.attempt.fencing import UNCLAIMED, Fence
from toolkit.training.errors import RecordRejected, Superseded
from toolkit.training.io.durable_files import encode_line, read_json

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

_MAX_QUEUED = 200_000  # records held while the server is away: about 100 MB
_BATCH_SIZE = 500  # records a call; MLflow takes 1000 metrics a call
_RUN_FILE, _BACKLOG_FILE = "mlflow.json", "tracking-backlog.json"


@dataclass(frozen=True, slots=True)
class TrackingRecord:
    """A record for the server. Empty fields are not sent."""

    at: float  # epoch seconds
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    artifact: str = ""  # path of a file
    status: str = ""  # a Status


class TrackingServer(Protocol):
    """A tracking server. After any exception but Rejected, a later call may succeed."""

    def open(self, run_id: str | None) -> str:
        """Continue the run `run_id`, or make one. Returns its id."""
        ...

    def send(self, run_id: str, records: list[TrackingRecord]) -> None: ...


class Tracker:
    """A queue of records, which its own thread sends in order."""

    def __init__(
        self,
        connect: Callable[[], TrackingServer],
        folder: Path,
        warn: Callable[[str], None],
        *,
        fence: Fence = UNCLAIMED,
        pauses: tuple[float, ...] = (1, 2, 4, 8, 16, 30),
        linger: float = 1.0,
    ) -> None:
        self._connect, self._folder, self._warn = connect, folder, warn
        self._fence = fence
        self._pauses, self._linger = pauses, linger
        self._queue: deque[TrackingRecord] = deque(self._read_backlog())
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def add(self, record: TrackingRecord) -> None:
        """Queue a record. Never waits for the server."""
        with self._changed:
            if len(self._queue) >= _MAX_QUEUED and not record.status:
                return  # after hours of outage; steps.jsonl still has every step
            self._queue.append(record)
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Send the waiting records within `timeout` seconds.

        The rest is kept for the next attempt. Returns whether all were sent. When another attempt
        has the run, nothing is sent and nothing kept.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            unsent_records = list(self._queue)
        with suppress(Superseded):
            self._write_backlog(unsent_records)
        return not unsent_records

    def _write_backlog(self, unsent_records: list[TrackingRecord]) -> None:
        path = self._folder / _BACKLOG_FILE
        if unsent_records:
            self._fence.write_fenced(
                path, encode_line({"records": [_as_json(record) for record in unsent_records]})
            )
            self._warn(
                f"tracking: {len(unsent_records)} records could not be sent; kept in {path.name}"
            )
        elif path.exists():
            self._fence.move_to_trash(path).unlink(missing_ok=True)

    def _read_backlog(self) -> list[TrackingRecord]:
        """Return the records that an earlier attempt kept.

        They come without the state that the attempt ended in, since the run goes on.
        """
        backlog = read_json(self._folder / _BACKLOG_FILE, limit=1 << 30) or {}
        return [TrackingRecord(**{**fields, "status": ""}) for fields in backlog.get("records", [])]

    def _run(self) -> None:
        connection: tuple[TrackingServer, str] | None = None
        failures = 0
        while batch := self._next_batch():
            try:
                self._fence.check()
                connection = connection or self._open()
                self._deliver(*connection, batch)
            except Superseded:
                return
            except Exception as error:  # noqa: BLE001  # no failure of the record may end the run
                failures += 1
                if failures == 1:
                    self._warn(f"tracking: the server can't be reached, training goes on: {error}")
                if not self._pause(failures):
                    return
                continue
            failures = 0
            with self._changed:
                for _ in batch:
                    self._queue.popleft()

    def _deliver(self, server: TrackingServer, run_id: str, batch: list[TrackingRecord]) -> None:
        """Send a batch. A refused record costs only itself."""
        try:
            server.send(run_id, batch)
        except RecordRejected as error:
            if len(batch) == 1:
                self._warn(f"tracking: the server refused a record: {error}")
            else:
                for record in batch:
                    self._deliver(server, run_id, [record])

    def _open(self) -> tuple[TrackingServer, str]:
        """Return a server, and the run's id there."""
        server, known_id = self._connect(), mlflow_run_id(self._folder)
        run_id = server.open(known_id)
        if run_id != known_id:
            self._fence.write_fenced(self._folder / _RUN_FILE, encode_line({"run_id": run_id}))
        return server, run_id

    def _next_batch(self) -> list[TrackingRecord]:
        """Return the next records to send; they stay queued until sent.

        Empty when the tracker is closed and all are sent.
        """
        with self._changed:
            while not self._queue and not self._is_closing:
                self._changed.wait()
            if not self._is_closing:
                self._changed.wait(self._linger)  # let a batch gather
            return [self._queue[i] for i in range(min(_BATCH_SIZE, len(self._queue)))]

    def _pause(self, failures: int) -> bool:
        """Wait before the next try, and return whether to make one.

        While closing, one failed batch is tried once more, without a wait: no next attempt may come
        to do so.
        """
        with self._changed:
            if self._is_closing and failures > 1:
                return False
            self._changed.wait_for(
                lambda: self._is_closing, self._pauses[min(failures, len(self._pauses)) - 1]
            )
            return True


class NoTracker:
    """A tracker for a run without a tracking server."""

    def add(self, record: TrackingRecord) -> None:  # noqa: ARG002  # the tracker's shape
        return

    def close(self, timeout: float) -> bool:  # noqa: ARG002  # the tracker's shape
        return True


def mlflow_run_id(folder: Path) -> str | None:
    """Return the id that the server gave the run in this folder.

    None when it has none yet.
    """
    run_id = (read_json(folder / _RUN_FILE) or {}).get("run_id")
    return str(run_id) if run_id else None


def has_backlog(folder: Path) -> bool:
    """Return whether an attempt kept records that it could not send."""
    try:
        return (folder / _BACKLOG_FILE).exists()
    except OSError:  # an unreadable folder must not change how a job ends
        return False


def as_floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as floats, without those that are NaN.

    This waits for values that a GPU still computes.
    """
    floats = {name: float(value) for name, value in metrics.items()}
    return {name: value for name, value in floats.items() if not math.isnan(value)}


def _as_json(record: TrackingRecord) -> dict[str, Any]:
    return {
        "at": record.at,
        "step": record.step,
        "metrics": dict(record.metrics),
        "params": dict(record.params),
        "tags": dict(record.tags),
        "artifact": record.artifact,
        "status": record.status,
    }
