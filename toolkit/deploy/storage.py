"""The CLI's few operations on a bucket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.deploy.session import error_code
from toolkit.errors import DestroyIncomplete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

    from toolkit.deploy.bundle import Bundle

ABSENT = {"NoSuchKey", "NoSuchBucket", "404", "NotFound"}
DELETE_AT_ONCE = 1000


class Bucket:
    """A bucket; reading a missing object gives None."""

    def __init__(self, s3: S3Client, name: str) -> None:
        self._s3 = s3
        self.name = name

    def read(self, key: str) -> bytes | None:
        """Return the object's bytes; None if it is missing."""
        try:
            return self._s3.get_object(Bucket=self.name, Key=key)["Body"].read()
        except ClientError as error:
            if error_code(error) in ABSENT:
                return None
            raise

    def read_json(self, key: str) -> dict[str, Any] | None:
        """Return the object as JSON; None unless it is a JSON object."""
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
        """Delete an object; may be repeated."""
        self._s3.delete_object(Bucket=self.name, Key=key)

    def has(self, key: str) -> bool:
        """Return whether an object of this key exists."""
        try:
            self._s3.head_object(Bucket=self.name, Key=key)
        except ClientError as error:
            if error_code(error) in ABSENT:
                return False
            raise
        return True

    def exists(self) -> bool:
        """Return whether the bucket exists."""
        try:
            self._s3.head_bucket(Bucket=self.name)
        except ClientError as error:
            if error_code(error) in ABSENT:
                return False
            raise
        return True

    def upload(self, bundle: Bundle) -> None:
        """Write a bundle under its hash, where instances look for it."""
        # The names import cluster.yaml's model, which takes longer than reading an object.
        from toolkit.deploy import names

        self.write(names.bundle(bundle.sha), bundle.data)

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the key and the bytes of each object below a prefix."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        for page in pages:
            for item in page.get("Contents", []):
                yield item["Key"], item["Size"]

    def copy_from(self, source: str, source_key: str, key: str) -> None:
        """Copy an object of another bucket, without reading it here."""
        self._s3.copy({"Bucket": source, "Key": source_key}, self.name, key)

    def empty(self) -> int:
        """Delete every version of every object; return how many.

        Objects written meanwhile are deleted too. Raises DestroyIncomplete for the
        first that can't be deleted.
        """
        deleted = 0
        # From the beginning each time: a page's end marker is deleted with the page.
        while batch := self._list_versions():
            response = self._s3.delete_objects(
                Bucket=self.name,
                Delete={"Objects": batch, "Quiet": True},  # type: ignore[typeddict-item]
            )
            for error in response.get("Errors", ()):
                reason = f"{error.get('Code', '')} {error.get('Message', '')}".strip()
                raise DestroyIncomplete(
                    f"S3 does not delete s3://{self.name}/{error.get('Key', '')}: {reason}"
                )
            deleted += len(batch)
        return deleted

    def _list_versions(self) -> list[dict[str, str]]:
        page = self._s3.list_object_versions(Bucket=self.name, MaxKeys=DELETE_AT_ONCE)
        return [
            {"Key": item["Key"], "VersionId": item["VersionId"]}
            for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        ]
