"""CloudWatch Logs: streams made when needed, and batches within its limits."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud.log_stream import EVENT_BYTES, MOST_BYTES, MOST_EVENTS, LogStreams, batches
from slurmplugins.errors import CloudError, Denied
from slurmplugins.model.log_line import LogLine
from slurmplugins.system.clock import SystemClock


def lines(count: int, length: int = 10) -> list[LogLine]:
    return [LogLine(float(number), "slurmd", "x" * length) for number in range(count)]


class FakeLogs:
    """A client whose group has no stream yet."""

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)
        self.calls: list[str] = []
        self.events: list[dict[str, Any]] = []

    def put_log_events(self, **arguments: Any) -> None:
        self._answer("put_log_events", arguments)
        self.events += arguments["logEvents"]

    def create_log_stream(self, **arguments: Any) -> None:
        self._answer("create_log_stream", arguments)

    def _answer(self, operation: str, arguments: dict[str, Any]) -> None:
        assert arguments["logGroupName"] == "/toolkit/demo"
        assert arguments["logStreamName"] == "gpu-001/i-1"
        self.calls.append(operation)
        if self.refusals and (code := self.refusals.pop(0)):
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


def put(client: FakeLogs) -> None:
    LogStreams("/toolkit/demo", lambda: client, SystemClock()).put("gpu-001/i-1", lines(1))


def test_a_stream_is_made_with_its_first_line():
    client = FakeLogs("ResourceNotFoundException")
    put(client)
    assert client.calls == ["put_log_events", "create_log_stream", "put_log_events"]
    assert client.events == [{"timestamp": 0, "message": "slurmd: " + "x" * 10}]


def test_a_stream_that_another_process_made_is_used():
    client = FakeLogs("ResourceNotFoundException", "ResourceAlreadyExistsException")
    put(client)
    assert len(client.events) == 1


def test_a_group_that_is_gone_is_an_error():
    client = FakeLogs("ResourceNotFoundException", "ResourceNotFoundException")
    with pytest.raises(CloudError):
        put(client)


def test_a_role_without_the_right_is_denied():
    with pytest.raises(Denied):
        put(FakeLogs("AccessDeniedException"))


@pytest.mark.parametrize(("count", "length"), [(0, 1), (25_000, 1), (300, 16_000), (3, 16_000)])
def test_batches_hold_every_line_within_the_limits(count: int, length: int):
    made = list(batches(lines(count, length)))
    assert sum(map(len, made)) == count
    for events in made:
        size = sum(len(event["message"].encode()) + EVENT_BYTES for event in events)
        assert len(events) <= MOST_EVENTS
        assert size <= MOST_BYTES
