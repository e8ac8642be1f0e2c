"""The few things the CLI does with a bucket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.deploy import names
from toolkit.deploy.session import error_code

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from toolkit.deploy.bundle import Bundle

ABSENT = {"NoSuchKey", "NoSuchBucket", "404", "NotFound"}
DELETE_AT_ONCE = 1000


class Bucket:
    """One bucket; reading what isn't there gives None."""

    def __init__(self, s3: S3Client, name: str) -> None:
        self._s3 = s3
        self.name = name

    def read(self, key: str) -> bytes | None:
        """The object's bytes."""
        try:
            return self._s3.get_object(Bucket=self.name, Key=key)["Body"].read()
        except ClientError as error:
            if error_code(error) in ABSENT:
                return None
            raise

    def read_json(self, key: str) -> dict[str, Any] | None:
        """The object as JSON; what isn't an object of JSON counts as not there."""
        data = self.read(key)
        try:
            value = json.loads(data) if data is not None else None
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def write(self, key: str, data: bytes) -> None:
        """Write or overwrite an object."""
        self._s3.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        """Delete an object; one that isn't there is deleted."""
        self._s3.delete_object(Bucket=self.name, Key=key)

    def exists(self) -> bool:
        """Whether there is such a bucket."""
        try:
            self._s3.head_bucket(Bucket=self.name)
        except ClientError as error:
            if error_code(error) in ABSENT:
                return False
            raise
        return True

    def upload(self, bundle: Bundle) -> None:
        """Put a bundle where machines look for it by its hash."""
        self.write(names.bundle(bundle.sha), bundle.data)

    def current(self) -> str:
        """The hash of the bundle the head node should have; `` before the first."""
        return (self.read(names.BUNDLE_CURRENT) or b"").decode(errors="replace").strip()

    def empty(self) -> int:
        """Delete every version of every object; returns how many."""
        deleted = 0
        pages = self._s3.get_paginator("list_object_versions").paginate(
            Bucket=self.name, PaginationConfig={"PageSize": DELETE_AT_ONCE}
        )
        for page in pages:
            batch = [
                {"Key": item["Key"], "VersionId": item["VersionId"]}
                for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
            ]
            if batch:
                self._s3.delete_objects(
                    Bucket=self.name,
                    Delete={"Objects": batch, "Quiet": True},  # type: ignore[typeddict-item]
                )
            deleted += len(batch)
        return deleted
