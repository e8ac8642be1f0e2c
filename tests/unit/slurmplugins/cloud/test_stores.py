"""Objects in S3, with a dictionary as the client."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud.stores import S3Store
from slurmplugins.errors import CloudError
from slurmplugins.system.workers import WorkerPool


class FakeS3:
    """A bucket with put_object, get_object and conditional writes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refuses = ""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str, **more: str):  # noqa: N803  # boto3's names
        if self.refuses:
            raise _error(self.refuses)
        if more.get("IfNoneMatch") == "*" and Key in self.objects:
            raise _error("PreconditionFailed")
        self.objects[Key] = Body
        return {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803  # boto3's names
        if Key not in self.objects:
            raise _error("NoSuchKey")
        return {"Body": io.BytesIO(self.objects[Key])}


def _error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutObject")


def test_an_object_that_exists_is_not_written_again():
    store = S3Store("bucket", FakeS3)
    assert store.create("a", {"n": 1})
    assert not store.create("a", {"n": 2})
    assert store.get("a") == {"n": 1}
    store.put("a", {"n": 3})
    assert store.get("a") == {"n": 3}


def test_what_can_not_be_created_for_another_reason_is_an_error():
    client = FakeS3()
    client.refuses = "ConditionalRequestConflict"
    with pytest.raises(CloudError):
        S3Store("bucket", lambda: client).create("a", {})


def test_many_at_once_make_one_client():
    made: list[FakeS3] = []

    def connect() -> FakeS3:
        time.sleep(0.01)
        made.append(FakeS3())
        return made[-1]

    store = S3Store("bucket", connect)
    WorkerPool(8).map(lambda number: store.put(str(number), {}), range(16))
    assert len(made) == 1
    assert len(made[0].objects) == 16
