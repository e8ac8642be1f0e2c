"""Send a run's records to a tracking server, from a thread that training never waits for.

One MLflow run holds all attempts of a run: its id stays in the run folder. While the server is away
records wait in memory. At the end of the attempt they wait in a file, which the next attempt sends
first. Only the run's owner sends records and writes these files. A superseded attempt does neither.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from toolkit.training.attempt.fencing import UNCLAIMED, Owner, Superseded
from toolkit.training.io.durable_files import encode, read_json

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

_ROOM = 200_000  # records held while the server is away: about 100 MB
_BATCH = 500  # records a call; MLflow takes 1000 metrics a call
_NOTED, _BACKLOG = "mlflow.json", "tracking-backlog.json"


class Rejected(Exception):  # noqa: N818  # says what happened
    """The error of a record that the server will never take. It is dropped, not sent again."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record for the server. Empty fields are not sent."""

    at: float  # epoch seconds
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    artifact: str = ""  # path of a file
    status: str = ""  # a Status


class Server(Protocol):
    """A tracking server. After any exception but Rejected, a later call may succeed."""

    def open(self, run_id: str | None) -> str:
        """Continue the run `run_id`, or make one. Returns its id."""
        ...

    def send(self, run_id: str, records: list[Record]) -> None: ...


class Tracker:
    """A queue of records, which its own thread sends in order."""

    def __init__(
        self,
        connect: Callable[[], Server],
        folder: Path,
        warn: Callable[[str], None],
        *,
        owner: Owner = UNCLAIMED,
        pauses: tuple[float, ...] = (1, 2, 4, 8, 16, 30),
        linger: float = 1.0,
    ) -> None:
        self._connect, self._folder, self._warn = connect, folder, warn
        self._owner = owner
        self._pauses, self._linger = pauses, linger
        self._waiting: deque[Record] = deque(self._backlog())
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def add(self, record: Record) -> None:
        """Queue a record. Never waits for the server."""
        with self._changed:
            if len(self._waiting) >= _ROOM and not record.status:
                return  # after hours of outage; steps.jsonl still has every step
            self._waiting.append(record)
            self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Send the waiting records within `timeout` seconds.

        The rest is kept for the next attempt. Returns whether all were sent. When another attempt
        has the run, nothing is sent and nothing kept.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            left = list(self._waiting)
        with suppress(Superseded):
            self._keep(left)
        return not left

    def _keep(self, left: list[Record]) -> None:
        path = self._folder / _BACKLOG
        if left:
            self._owner.put(path, encode({"records": [_plain(record) for record in left]}))
            self._warn(f"tracking: {len(left)} records kept in {path.name} for the next attempt")
        elif path.exists():
            self._owner.take(path).unlink(missing_ok=True)

    def _backlog(self) -> list[Record]:
        """Return the records that an earlier attempt kept.

        They come without the state that the attempt ended in, since the run goes on.
        """
        found = read_json(self._folder / _BACKLOG, limit=1 << 30) or {}
        return [Record(**{**fields, "status": ""}) for fields in found.get("records", [])]

    def _run(self) -> None:
        opened: tuple[Server, str] | None = None
        failures = 0
        while batch := self._next():
            try:
                self._owner.check()
                opened = opened or self._open()
                self._deliver(*opened, batch)
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
                    self._waiting.popleft()

    def _deliver(self, server: Server, run_id: str, batch: list[Record]) -> None:
        """Send a batch. A refused record costs only itself."""
        try:
            server.send(run_id, batch)
        except Rejected as error:
            if len(batch) == 1:
                self._warn(f"tracking: the server does not take a record: {error}")
            else:
                for record in batch:
                    self._deliver(server, run_id, [record])

    def _open(self) -> tuple[Server, str]:
        """Return a server, and the run's id there."""
        server, known = self._connect(), noted_run(self._folder)
        run_id = server.open(known)
        if run_id != known:
            self._owner.put(self._folder / _NOTED, encode({"run_id": run_id}))
        return server, run_id

    def _next(self) -> list[Record]:
        """Return the next records to send; they stay queued until sent.

        Empty when the tracker is closed and all are sent.
        """
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            if not self._closing:
                self._changed.wait(self._linger)  # let a batch gather
            return [self._waiting[i] for i in range(min(_BATCH, len(self._waiting)))]

    def _pause(self, failures: int) -> bool:
        """Wait before the next try, and return whether to make one.

        While closing, one failed batch is tried once more, without a wait: no next attempt may come
        to do so.
        """
        with self._changed:
            if self._closing and failures > 1:
                return False
            self._changed.wait_for(
                lambda: self._closing, self._pauses[min(failures, len(self._pauses)) - 1]
            )
            return True


class NoTracker:
    """A tracker for a run without a tracking server."""

    def add(self, record: Record) -> None:  # noqa: ARG002  # the tracker's shape
        return

    def close(self, timeout: float) -> bool:  # noqa: ARG002  # the tracker's shape
        return True


def noted_run(folder: Path) -> str | None:
    """Return the id that the server gave the run in this folder.

    None when it has none yet.
    """
    found = (read_json(folder / _NOTED) or {}).get("run_id")
    return str(found) if found else None


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as floats, without those that are NaN.

    This waits for values that a GPU still computes.
    """
    found = {name: float(value) for name, value in metrics.items()}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _plain(record: Record) -> dict[str, Any]:
    return {
        "at": record.at,
        "step": record.step,
        "metrics": dict(record.metrics),
        "params": dict(record.params),
        "tags": dict(record.tags),
        "artifact": record.artifact,
        "status": record.status,
    }
