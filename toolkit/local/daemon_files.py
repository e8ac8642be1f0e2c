"""The daemon's files in the state directory: its lock, its pid, its options, its log."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.local.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class AlreadyRunning(RuntimeError):  # noqa: N818 - what it is
    """Another daemon holds this state directory."""


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that holds the lock: its pid and what it was started with."""

    pid: int
    options: Options


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files by which one local cloud's daemon is found."""

    root: Path

    @property
    def lock(self) -> Path:
        """Return the path of the lock held while the daemon lives.

        It is released however the daemon ends.
        """
        return self.root / "daemon.lock"

    @property
    def record(self) -> Path:
        """Return the path of the daemon's pid and options."""
        return self.root / "daemon.json"

    @property
    def log(self) -> Path:
        """Return the path of the daemon's log."""
        return self.root / "daemon.log"

    @contextlib.contextmanager
    def hold(self, options: Options) -> Iterator[None]:
        """Hold the directory for this process; AlreadyRunning when another does."""
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(f"a daemon holds {self.root}") from None
            self._write({"pid": os.getpid(), "options": options.to_json()})
            yield
            self.record.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def running(self) -> RunningDaemon | None:
        """Return the daemon that holds the directory, None if there is none."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._read()
        finally:
            os.close(descriptor)
        return None

    def _read(self) -> RunningDaemon | None:
        try:
            data = json.loads(self.record.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return RunningDaemon(int(data["pid"]), Options.from_json(data["options"]))

    def _write(self, data: dict[str, object]) -> None:
        scratch = self.record.with_suffix(".new")
        scratch.touch(mode=0o600)
        scratch.write_text(json.dumps(data))
        scratch.rename(self.record)
