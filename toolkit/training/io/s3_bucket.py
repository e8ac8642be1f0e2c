"""Call S3 for one bucket, and upload large objects to it in parts.

S3 keeps the parts of an upload that a kill cut short. The next upload of the key compares each of
them, and sends only the others. Datasets and checkpoints share this.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

_CONDITIONAL_CALLS = ("PutObject", "CompleteMultipartUpload")
_HIDDEN_CODES = ("403", "AccessDenied")
_ABSENT_CODES = ("NoSuchKey", "404", "NotFound", "NoSuchUpload")
_EXISTS_CODES = ("PreconditionFailed", "412")
CONFLICT_CODE = "ConditionalRequestConflict"
CONFLICT_PAUSES = (0.2, 0.4, 0.8, 1.6)  # seconds


class S3Bucket:
    """A bucket. `errors` makes a context that raises S3's errors as the caller's."""

    def __init__(
        self,
        name: str,
        client: Any,
        *,
        errors: Callable[[], AbstractContextManager[None]] = nullcontext,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self.client, self.errors, self.sleep = name, client, errors, sleep
        accept_if_none_match(client)

    def call(
        self,
        operation: str,
        *,
        if_absent: Any = ...,
        if_exists: Any = ...,
        if_conflict: Any = ...,
        **parameters: Any,
    ) -> Any:
        """Call S3 and return the answer.

        `if_absent`, `if_exists` or `if_conflict`, if given, is returned in place of that refusal.
        A conflict decides nothing: another operation on the key was running.
        """
        from botocore.exceptions import ClientError

        with self.errors():
            try:
                return getattr(self.client, operation)(Bucket=self.name, **parameters)
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code"))
                if code in _EXISTS_CODES and if_exists is not ...:
                    return if_exists
                if code == CONFLICT_CODE and if_conflict is not ...:
                    return if_conflict
                if if_absent is not ... and self._is_absent(operation, code, parameters):
                    return if_absent
                raise

    def _is_absent(self, operation: str, code: str, parameters: Mapping[str, Any]) -> bool:
        """Return whether a refusal means that the object is absent.

        S3 refuses a missing object to those who may not list the whole bucket (S3 API
        reference, HeadObject). A job may list its own prefixes only. The list then tells.
        """
        if code in _ABSENT_CODES:
            return True
        if code not in _HIDDEN_CODES or operation not in ("get_object", "head_object"):
            return False
        from botocore.exceptions import BotoCoreError, ClientError

        key = parameters["Key"]
        try:
            answer = self.client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
        except (BotoCoreError, ClientError):
            return False  # the first refusal says more
        return all(item["Key"] != key for item in answer.get("Contents", ()))

    def put_new(self, key: str, content: bytes | bytearray, **options: Any) -> bool:
        """Write an object unless its key exists; return whether it was written.

        S3 wants a conflict's call repeated (S3 API reference, PutObject, If-None-Match).
        """
        parameters = {"Key": key, "Body": content, "IfNoneMatch": "*", **options}
        for pause in CONFLICT_PAUSES:
            answer = self.call("put_object", if_exists=False, if_conflict=None, **parameters)
            if answer is not None:
                return answer is not False
            self.sleep(pause)
        return self.call("put_object", if_exists=False, **parameters) is not False

    def objects(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """Yield the objects whose keys begin with `prefix`."""
        return self._items("list_objects_v2", "Contents", Prefix=prefix)

    def uploads(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """Yield the multipart uploads that were neither completed nor aborted."""
        return self._items("list_multipart_uploads", "Uploads", Prefix=prefix)

    def parts(self, key: str, upload_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the parts that a multipart upload has in S3."""
        return self._items("list_parts", "Parts", Key=key, UploadId=upload_id)

    def abort(self, upload: Mapping[str, Any]) -> None:
        """Delete an upload of `uploads`, with its parts. May be repeated."""
        target = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
        self.call("abort_multipart_upload", if_absent=None, **target)

    def _items(self, operation: str, field: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        with self.errors():
            paginator = self.client.get_paginator(operation)
            for page in paginator.paginate(Bucket=self.name, **parameters):
                yield from page.get(field, ())


class MultipartUpload:
    """An object on its way to S3, in parts that are numbered from 0.

    It continues the key's newest upload, if there is one and `anew` is false. `options` are those
    of a new upload.
    """

    def __init__(self, bucket: S3Bucket, key: str, *, anew: bool = False, **options: Any) -> None:
        self._bucket = bucket
        all_uploads = () if anew else bucket.uploads(key)
        uploads = [upload for upload in all_uploads if upload["Key"] == key]
        if uploads:
            upload = max(uploads, key=lambda upload: upload["Initiated"])
        else:
            upload = bucket.call(
                "create_multipart_upload", Key=key, ChecksumAlgorithm="SHA256", **options
            )
        self._target = {"Key": key, "UploadId": upload["UploadId"]}
        parts = bucket.parts(key, upload["UploadId"]) if uploads else ()
        self._arrived_parts = {part["PartNumber"] - 1: part for part in parts}
        self._sent_parts: dict[int, dict[str, Any]] = {}

    def send(self, number: int, content: bytes | bytearray) -> None:
        """Send a part, unless S3 has it.

        Threads may call it at the same time.
        """
        sha256 = checksum(content)
        part = {"PartNumber": number + 1, "ChecksumSHA256": sha256}
        answer = self._arrived_parts.get(number)
        if answer is None or not _has_content(answer, content, sha256):
            answer = self._bucket.call("upload_part", **self._target, **part, Body=content)
        self._sent_parts[number] = part | {"ETag": answer["ETag"]}

    def complete(self, **conditions: Any) -> Any:
        """Make the object appear once all parts were sent; return S3's answer.

        `conditions` are those of `S3Bucket.call` and of S3. After a conflict this upload can't be
        completed: S3 wants a new one (S3 API reference, CompleteMultipartUpload, If-None-Match).
        """
        parts = [part for _, part in sorted(self._sent_parts.items())]
        return self._bucket.call(
            "complete_multipart_upload",
            **self._target,
            MultipartUpload={"Parts": parts},
            **conditions,
        )


def accept_if_none_match(client: Any) -> None:
    """Let a client's calls take IfNoneMatch, with any botocore.

    May be repeated. Ubuntu 24.04's 1.34.46 refuses such a call before it is sent, so the header is
    set here. slurmplugins/cloud/conditional_writes.py does the same; jobs do not have slurmplugins.
    """
    events = getattr(getattr(client, "meta", None), "events", None)
    if events is None:
        return  # a test's fake
    for call in _CONDITIONAL_CALLS:
        events.register(
            f"before-parameter-build.s3.{call}", _take_condition, unique_id=f"toolkit-take-{call}"
        )
        events.register(f"before-call.s3.{call}", _set_header, unique_id=f"toolkit-set-{call}")


def _take_condition(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    if "IfNoneMatch" in params:
        context["toolkit_if_none_match"] = params.pop("IfNoneMatch")


def _set_header(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    if "toolkit_if_none_match" in context:
        params["headers"]["If-None-Match"] = context["toolkit_if_none_match"]


def checksum(content: bytes | bytearray) -> str:
    """Return the SHA-256 in S3's form."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def _has_content(part: Mapping[str, Any], content: bytes | bytearray, sha256: str) -> bool:
    """Return whether a part in S3 has this content.

    Compares the ETag if S3 lists no SHA-256: it is the part's MD5, and with KMS something else.
    Such a part is sent again.
    """
    if "ChecksumSHA256" in part:
        return bool(part["ChecksumSHA256"] == sha256)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return str(part["ETag"]).strip('"') == md5
