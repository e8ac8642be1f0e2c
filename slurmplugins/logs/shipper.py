"""Send the lines of all sources to one stream, and remember what was sent.

Files and journal are the buffer: the shipper holds the lines of one call, and no copy on disk. A
line is sent at least once. After a kill the lines of the last seconds may be sent again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from slurmplugins.errors import CloudError, InvalidRequest
from slurmplugins.logs.redaction import without_secrets
from slurmplugins.model.json_input import loads
from slurmplugins.system.files import write_atomically
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.logs.source import Source
    from slurmplugins.model.log_line import LogLine
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

PERIOD: Final = 2.0
"""Seconds between two looks at the sources.

A node that dies without a notice loses its last two seconds. Without new lines, no call is made.
"""

PASS_BYTES: Final = 512 * 1024
"""Bytes of one pass, so that one call takes them all: half of what PutLogEvents accepts."""

LAST_PASSES: Final = 8
"""Passes at the end, so that a long backlog does not delay a shutdown."""

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before the next try after a failed call; the pause doubles."""

SAVE_SECONDS: Final = 15.0
"""Seconds between two writes of the positions."""


class Stream(Protocol):
    def put(self, name: str, lines: Sequence[LogLine]) -> None:
        """Send lines in the order of their time. Raises CloudError."""
        ...


class StreamName(Protocol):
    def get(self, *, last: bool) -> str | None:
        """Return the stream's name; None while the instance's node is not known."""
        ...


@dataclass(slots=True)
class Shipper:
    """The sources, their stream, and the file of positions."""

    sources: Sequence[Source]
    stream: Stream
    name: StreamName
    positions: Path
    clock: Clock
    log: Log
    jitter: Callable[[], float] = lambda: 1.0
    """Returns a factor for pauses, so that the nodes of a cluster don't return all at once."""
    _failures: int = 0
    _retry_at: float = float("-inf")
    _saved_at: float = field(default=float("-inf"))

    def run(self, stopped: Callable[[float], bool]) -> None:
        """Ship until `stopped` is true, then send what is left.

        `stopped` waits up to that many seconds for the end.
        """
        more = False
        while not stopped(0.0 if more else PERIOD):
            more = self.ship()
        self.finish()

    def finish(self) -> None:
        """Send what is left, at once and also after failures."""
        passes = 0
        while passes < LAST_PASSES and self.ship(last=True):
            passes += 1
        self._save()
        for source in self.sources:
            source.close()

    def ship(self, *, last: bool = False) -> bool:
        """Send each source's next lines; return whether it may have more."""
        if not last and self.clock.monotonic() < self._retry_at:
            return False
        if (name := self.name.get(last=last)) is None:
            return False
        share = PASS_BYTES // len(self.sources)
        chunks = [source.read(share, last=last) for source in self.sources]
        lines = sorted(chain.from_iterable(chunks), key=lambda line: line.at)
        if lines and not self._send(name, lines):
            return False
        for source in self.sources:
            source.accept()
        if lines and self.clock.monotonic() - self._saved_at >= SAVE_SECONDS:
            self._save()
        return any(source.has_more for source in self.sources) or (last and bool(lines))

    def _send(self, name: str, lines: Sequence[LogLine]) -> bool:
        """Return whether the lines are done with: sent, or refused for good."""
        clean = [replace(line, text=without_secrets(line.text)) for line in lines]
        try:
            self.stream.put(name, clean)
        except InvalidRequest as error:
            # The same lines would be refused for ever, and hold up all later ones.
            self.log.failure(
                LogEvent.LOG_LINES_REFUSED, lines=len(lines), code=error.code, message=error.message
            )
            return True
        except CloudError as error:
            self._back_off(error)
            return False
        if self._failures:
            self.log.info(LogEvent.LOGS_SHIPPED_AGAIN, failures=self._failures)
            self._failures = 0
        return True

    def _back_off(self, error: CloudError) -> None:
        """Set the time of the next try, and log a first failure."""
        if not self._failures:
            self.log.warning(LogEvent.LOGS_NOT_SHIPPED, code=error.code, message=error.message)
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)
        self._failures += 1
        self._retry_at = self.clock.monotonic() + pause * self.jitter()

    def _save(self) -> None:
        """Write the positions. Without them, a restart sends some lines again."""
        self._saved_at = self.clock.monotonic()
        positions = {source.key: source.position for source in self.sources}
        try:
            write_atomically(self.positions, json.dumps(positions).encode(), mode=0o600)
        except OSError as error:
            self.log.warning(LogEvent.LOG_POSITIONS_NOT_SAVED, message=str(error))


def read_positions(path: Path) -> dict[str, str]:
    """Return the positions by source; empty where none are kept."""
    try:
        value = loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}
