"""The cluster's log group: its streams, and their lines in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from slurmplugins.cloud.log_stream import ABSENT
from toolkit.deploy.session import error_code
from toolkit.logs.errors import LogsAbsent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_STREAMS: Final = 100
"""Streams that FilterLogEvents reads at once (CloudWatch Logs API reference)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream of one instance, which was one node."""

    node: str
    instance: str
    last_at: float
    """Seconds since the epoch of its last line, 0 if it has none."""

    @property
    def name(self) -> str:
        """Return the name in the log group."""
        return f"{self.node}/{self.instance}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its place; `id` tells it from all others."""

    id: str
    at: float
    node: str
    instance: str
    unit: str
    text: str


class LogGroup:
    """Reads one log group. Raises botocore's errors, and LogsAbsent if it does not exist."""

    def __init__(self, client: Any, name: str) -> None:
        """Read with the client of the service."""
        self._client = client
        self.name = name

    def streams(self, prefix: str = "") -> list[Stream]:
        """Return the streams with this prefix, ordered by their last lines."""
        given = {"logStreamNamePrefix": prefix} if prefix else {}
        streams = [
            _stream(item)
            for page in self._pages("describe_log_streams", **given)
            for item in page["logStreams"]
        ]
        return sorted(streams, key=lambda stream: stream.last_at)

    def lines(self, streams: Sequence[Stream], since: float) -> Iterator[Line]:
        """Yield the lines of streams from a moment on.

        Of many streams, the newest are read.
        """
        names = [stream.name for stream in streams[-MOST_STREAMS:]]
        arguments = {"logStreamNames": names, "startTime": max(0, int(since * 1000))}
        for page in self._pages("filter_log_events", **arguments):
            yield from map(_line, page["events"])

    def _pages(self, operation: str, **arguments: Any) -> Iterator[Any]:
        pages = self._client.get_paginator(operation).paginate(logGroupName=self.name, **arguments)
        try:
            yield from pages
        except ClientError as error:
            if error_code(error) != ABSENT:
                raise
            raise LogsAbsent(
                f"there is no log group {self.name}",
                next_step="`toolkit deploy` makes it, if cluster.yaml has logs.enabled",
            ) from error


def _stream(item: dict[str, Any]) -> Stream:
    node, _, instance = str(item["logStreamName"]).rpartition("/")
    return Stream(node, instance, item.get("lastEventTimestamp", 0) / 1000)


def _line(event: dict[str, Any]) -> Line:
    node, _, instance = str(event["logStreamName"]).rpartition("/")
    unit, _, text = str(event["message"]).partition(": ")
    return Line(str(event["eventId"]), event["timestamp"] / 1000, node, instance, unit, text)
