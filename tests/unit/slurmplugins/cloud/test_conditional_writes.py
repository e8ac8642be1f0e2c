"""The condition of a write to S3, in requests that no network sends."""

from __future__ import annotations

import io
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from slurmplugins.cloud import conditional_writes
from slurmplugins.cloud.client import client
from slurmplugins.system.workers import WorkerPool


class Body(io.BytesIO):
    """An answer's empty body, as botocore reads it."""

    def stream(self, **_: object) -> list[bytes]:
        return []


class Wire:
    """An S3 client's requests, each answered by an empty success."""

    def __init__(self) -> None:
        self.conditions: dict[str, str | None] = {}
        self.client = client("s3", "us-east-1", "http://127.0.0.1:1")
        self.client.meta.events.register("before-send", self._answer)

    def put(self, key: str, **condition: str) -> None:
        self.client.put_object(Bucket="bucket", Key=key, Body=b"", **condition)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        value = request.headers.get("If-None-Match")
        text = value.decode() if isinstance(value, bytes) else value
        self.conditions[request.url.rpartition("/")[2]] = text
        return AWSResponse(request.url, 200, {}, Body())


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    return Wire()


def test_of_writes_at_once_each_has_its_own_condition(wire: Wire):
    def put(number: int) -> None:
        wire.put(str(number), **({"IfNoneMatch": "*"} if number % 2 else {}))

    WorkerPool(8).map(put, range(32))
    assert wire.conditions == {str(number): "*" if number % 2 else None for number in range(32)}


def test_a_client_that_is_attached_twice_sends_one_condition(wire: Wire):
    conditional_writes.attach(wire.client)
    wire.put("one", IfNoneMatch="*")
    assert wire.conditions == {"one": "*"}
