"""The few things the CLI does with a bucket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.deploy import names
from toolkit.deploy.session import error_code
from toolkit.errors import DestroyIncomplete

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
        """Delete every version of every object, those that are written meanwhile too; how many.

        Raises DestroyIncomplete for the first that can't be deleted.
        """
        deleted = 0
        # From the beginning each time: the place where a page ended goes with what was on it.
        while batch := self._some_versions():
            answer = self._s3.delete_objects(
                Bucket=self.name,
                Delete={"Objects": batch, "Quiet": True},  # type: ignore[typeddict-item]
            )
            for refused in answer.get("Errors", ()):
                said = f"{refused.get('Code', '')} {refused.get('Message', '')}".strip()
                raise DestroyIncomplete(f"s3://{self.name}/{refused.get('Key', '')}: {said}")
            deleted += len(batch)
        return deleted

    def _some_versions(self) -> list[dict[str, str]]:
        page = self._s3.list_object_versions(Bucket=self.name, MaxKeys=DELETE_AT_ONCE)
        return [
            {"Key": item["Key"], "VersionId": item["VersionId"]}
            for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        ]
