"""CloudWatch Logs, as an instance's shipper uses it: streams of one group.

Limits of a call: CloudWatch Logs API reference, PutLogEvents. Each event counts 26 bytes more than
its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud.client import call
from slurmplugins.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurmplugins.model.log_line import LogLine
    from slurmplugins.system.clock import Clock

MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 1_048_576
EVENT_BYTES: Final = 26

ABSENT: Final = "ResourceNotFoundException"
EXISTS: Final = "ResourceAlreadyExistsException"


class LogStreams:
    """The streams of one log group. A stream is made when its first line is sent."""

    def __init__(self, group: str, connect: Callable[[], Any], clock: Clock) -> None:
        self._group = group
        self._connect = connect
        self._clock = clock
        self._client: Any = None

    def put(self, name: str, lines: Sequence[LogLine]) -> None:
        """Send lines, which are in the order of their time. Raises CloudError."""
        for events in batches(lines):
            try:
                self._put(name, events)
            except CloudError as error:
                if error.code != ABSENT:
                    raise
                self._create(name)
                self._put(name, events)

    def _put(self, name: str, events: list[dict[str, Any]]) -> None:
        self._call("put_log_events", logStreamName=name, logEvents=events)

    def _create(self, name: str) -> None:
        try:
            self._call("create_log_stream", logStreamName=name)
        except CloudError as error:
            if error.code != EXISTS:
                raise

    def _call(self, operation: str, **arguments: Any) -> None:
        def work() -> None:
            if self._client is None:
                self._client = self._connect()
            getattr(self._client, operation)(logGroupName=self._group, **arguments)

        call(self._clock, operation, work)


def batches(lines: Sequence[LogLine]) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of each call: `UNIT: text`, as syslog writes it."""
    events: list[dict[str, Any]] = []
    size = 0
    for line in lines:
        message = f"{line.unit}: {line.text}"
        cost = len(message.encode()) + EVENT_BYTES
        if events and (len(events) == MOST_EVENTS or size + cost > MOST_BYTES):
            yield events
            events, size = [], 0
        events.append({"timestamp": round(line.at * 1000), "message": message})
        size += cost
    if events:
        yield events
