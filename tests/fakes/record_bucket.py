"""An S3 in memory that counts its calls, for readers of records."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from botocore.exceptions import ClientError

PAGE = 1000


@dataclass
class FakeS3:
    """Buckets with objects, listed in pages of a thousand keys as S3 does."""

    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    """The time of a key's last write."""
    calls: Counter[str] = field(default_factory=Counter)
    refusals: dict[str, str] = field(default_factory=dict)
    """S3's error codes by the keys of objects that it refuses, or `list` for each listing."""

    def get_paginator(self, name):
        assert name == "list_objects_v2"
        return self

    def paginate(self, Bucket, Prefix, StartAfter=""):  # noqa: N803 - boto3's own names
        if "list" in self.refusals:
            raise ClientError({"Error": {"Code": self.refusals["list"]}}, "ListObjectsV2")
        keys = sorted(
            key
            for key in self.buckets.get(Bucket, ())
            if key.startswith(Prefix) and key > StartAfter
        )
        for start in range(0, max(len(keys), 1), PAGE):
            self.calls["list"] += 1
            yield {
                "Contents": [
                    {"Key": key, "LastModified": datetime.fromtimestamp(self.written[key], UTC)}
                    for key in keys[start : start + PAGE]
                ]
            }

    def get_object(self, Bucket, Key):  # noqa: N803
        self.calls["get"] += 1
        if Key in self.refusals:
            raise ClientError({"Error": {"Code": self.refusals[Key]}}, "GetObject")
        if Key not in self.buckets.get(Bucket, ()):
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": io.BytesIO(self.buckets[Bucket][Key])}

    def put(self, bucket: str, key: str, body: bytes, written: int) -> None:
        """Write an object."""
        self.buckets.setdefault(bucket, {})[key] = body
        self.written[key] = written


@dataclass
class Adder:
    """The bucket of records, as the head writes to it."""

    s3: FakeS3
    bucket: str
    now: int = 0

    def add(self, key: str, body: bytes) -> bool:
        """Write an object unless it is there."""
        if key in self.s3.buckets.get(self.bucket, {}):
            return False
        self.s3.put(self.bucket, key, body, self.now)
        return True
