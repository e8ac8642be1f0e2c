"""A store in S3. boto3 is loaded when a store is opened, so that only S3 needs it."""

import base64
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from toolkit.datasets import chunks
from toolkit.datasets.chunks import BUFFER, Bytes, Readable, Span
from toolkit.datasets.errors import ContentCorrupt, SourceChanged, StoreFailed, StoreUnreachable
from toolkit.datasets.store.manifest import File
from toolkit.datasets.store.port import Store, StoreItem, Upload, object_key
from toolkit.training.io.s3_client import s3_client

MOST_PARTS = 10_000  # S3's own limit
_DELETE_BATCH = 1000
_ABSENT_CODES = ("NoSuchKey", "404", "NotFound")
_TRANSIENT_STATUSES = (429, *range(500, 600))
_TRANSIENT_CODES = ("RequestTimeout", "ExpiredToken")  # both are 400
_EXISTS_CODES = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")


class S3Store(Store):
    """A store in a bucket. boto3 finds the credentials.

    Region and endpoint come from boto3 too, else from the cluster's settings.
    """

    workers = 16

    def __init__(self, bucket: str, prefix: str, *, client: Any = None) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._bucket = Bucket(bucket, client or _client(self.workers))

    def read(self, key: str) -> bytes | None:
        answer = self._bucket.call("get_object", if_absent=None, Key=self._prefix + key)
        if answer is None:
            return None
        with _store_errors(self.url):
            content: bytes = answer["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        self._bucket.call("put_object", Key=self._prefix + key, Body=content)

    def write_new(self, key: str, content: bytes) -> bool:
        parameters = {"Key": self._prefix + key, "Body": content, "IfNoneMatch": "*"}
        return self._bucket.call("put_object", if_exists=False, **parameters) is not False

    def list(self, prefix: str) -> Iterator[StoreItem]:
        listing = self._bucket.pages("list_objects_v2", Prefix=self._prefix + prefix)
        for page in listing:
            for item in page.get("Contents", ()):
                key = str(item["Key"]).removeprefix(self._prefix)
                yield StoreItem(key, int(item["Size"]), item["LastModified"].timestamp())

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _DELETE_BATCH):
            names = [{"Key": self._prefix + key} for key in keys[start : start + _DELETE_BATCH]]
            answer = self._bucket.call("delete_objects", Delete={"Objects": names, "Quiet": True})
            if errors := answer.get("Errors"):
                raise StoreFailed(f"{self.url}: {errors[0].get('Code')} for {errors[0].get('Key')}")

    def upload(self, file: File) -> Upload | None:
        key = self._prefix + object_key(file)
        if self._bucket.call("head_object", if_absent=None, Key=key) is not None:
            return None
        if len(file.chunks) == 1:
            return _SingleUpload(self._bucket, key, file)
        return _MultipartUpload(self._bucket, key, file)

    def finish(self, uploads: Sequence[Upload]) -> None:
        for upload in uploads:
            if isinstance(upload, _MultipartUpload):
                upload.complete()

    def open(self, file: File) -> Readable:
        return _StoredContent(self._bucket, self._prefix + object_key(file), file)

    def delete_stale_uploads(self, cutoff: float) -> None:
        for page in self._bucket.pages("list_multipart_uploads", Prefix=self._prefix):
            for upload in page.get("Uploads", ()):
                if upload["Initiated"].timestamp() < cutoff:
                    self._bucket.call(
                        "abort_multipart_upload",
                        if_absent=None,
                        Key=upload["Key"],
                        UploadId=upload["UploadId"],
                    )


class Bucket:
    """A bucket whose errors are raised as the store's."""

    def __init__(self, name: str, client: Any) -> None:
        self.name, self._client = name, client

    def call(
        self, operation: str, *, if_absent: Any = ..., if_exists: Any = ..., **parameters: Any
    ) -> Any:
        """Call S3 and return the answer.

        `absent` or `taken`, if given, is returned in place of that refusal.
        """
        from botocore.exceptions import ClientError

        with _store_errors(f"s3://{self.name}"):
            try:
                return getattr(self._client, operation)(Bucket=self.name, **parameters)
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code"))
                if code in _EXISTS_CODES and if_exists is not ...:
                    return if_exists
                if code in (*_ABSENT_CODES, "NoSuchUpload") and if_absent is not ...:
                    return if_absent
                raise

    def pages(self, operation: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        with _store_errors(f"s3://{self.name}"):
            yield from self._client.get_paginator(operation).paginate(
                Bucket=self.name, **parameters
            )


class _StoredContent(Readable):
    def __init__(self, bucket: Bucket, key: str, file: File) -> None:
        self._bucket, self._key, self._file = bucket, key, file

    def pieces(self, span: Span, buffer: memoryview) -> Iterator[Bytes]:
        del buffer  # botocore brings its own
        if span.length == 0:
            return
        last = span.offset + span.length - 1
        parameters = {"Key": self._key, "Range": f"bytes={span.offset}-{last}"}
        answer = self._bucket.call("get_object", if_absent=None, **parameters)
        if answer is None:
            raise ContentCorrupt(f"the content of {self._file.path} is not in the store")
        with _store_errors(f"s3://{self._bucket.name}"):
            yield from answer["Body"].iter_chunks(BUFFER)


class _SingleUpload(Upload):
    """A file of one chunk: one request, which S3 checks against the hash."""

    def __init__(self, bucket: Bucket, key: str, file: File) -> None:
        self._bucket, self._key, self._file = bucket, key, file

    def missing(self) -> Sequence[Span]:
        return tuple(chunks.spans(self._file.size))

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        content = _read_checked(self._file, source, span, buffer)
        self._bucket.call(
            "put_object", Key=self._key, Body=content, ChecksumSHA256=_base64(self._file.chunks[0])
        )

    def abandon(self) -> None:
        return


class _MultipartUpload(Upload):
    """A multipart upload; an interrupted one is continued."""

    def __init__(self, bucket: Bucket, key: str, file: File) -> None:
        self._bucket, self._key, self._file = bucket, key, file
        self._lock = threading.Lock()
        # A part is whole chunks, so that each can be checked: one chunk up to 160 GB, else more.
        self._part_size = chunks.CHUNK * -(-len(file.chunks) // MOST_PARTS)
        self._sent_parts: dict[int, dict[str, Any]] = {}
        self._arrived_etags: dict[int, str] = {}
        self._upload_id = self._find_upload() or self._begin_upload()

    def missing(self) -> Sequence[Span]:
        starts = range(0, self._file.size, self._part_size)
        return tuple(
            Span(offset, min(self._part_size, self._file.size - offset)) for offset in starts
        )

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        content = _read_checked(self._file, source, span, buffer)
        number = span.offset // self._part_size + 1
        checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
        etag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        # S3's ETag of a part is its md5. With KMS it is not: the part is sent again.
        if self._arrived_etags.get(number) != etag:
            answer = self._bucket.call(
                "upload_part",
                Key=self._key,
                UploadId=self._upload_id,
                PartNumber=number,
                Body=content,
                ChecksumSHA256=checksum,
            )
            etag = str(answer["ETag"]).strip('"')
        with self._lock:
            self._sent_parts[number] = {
                "PartNumber": number,
                "ETag": f'"{etag}"',
                "ChecksumSHA256": checksum,
            }

    def abandon(self) -> None:
        return  # S3 keeps the parts; `tidy` deletes them in the end

    def complete(self) -> None:
        parts = [self._sent_parts[number] for number in sorted(self._sent_parts)]
        self._bucket.call(
            "complete_multipart_upload",
            Key=self._key,
            UploadId=self._upload_id,
            MultipartUpload={"Parts": parts},
        )

    def _begin_upload(self) -> str:
        answer = self._bucket.call(
            "create_multipart_upload", Key=self._key, ChecksumAlgorithm="SHA256"
        )
        return str(answer["UploadId"])

    def _find_upload(self) -> str | None:
        uploads = [
            upload
            for page in self._bucket.pages("list_multipart_uploads", Prefix=self._key)
            for upload in page.get("Uploads", ())
            if upload["Key"] == self._key
        ]
        if not uploads:
            return None
        upload_id = max(uploads, key=lambda upload: upload["Initiated"])["UploadId"]
        for page in self._bucket.pages("list_parts", Key=self._key, UploadId=upload_id):
            for part in page.get("Parts", ()):
                self._arrived_etags[int(part["PartNumber"])] = str(part["ETag"]).strip('"')
        return str(upload_id)


def _read_checked(file: File, source: Readable, span: Span, buffer: memoryview) -> bytearray:
    """Read a span of whole chunks and check each against the manifest.

    Raises SourceChanged.
    """
    content = bytearray()
    for piece in source.pieces(span, buffer):
        content += piece
    first_chunk = span.offset // chunks.CHUNK
    for offset in range(0, max(len(content), 1), chunks.CHUNK):
        digest = hashlib.sha256(memoryview(content)[offset : offset + chunks.CHUNK]).hexdigest()
        if digest != file.chunks[first_chunk + offset // chunks.CHUNK]:
            break
    else:
        if len(content) == span.length:
            return content
    raise SourceChanged(f"{file.path} changed while it was added", next_step="add the folder again")


def _base64(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode()


def _client(connections: int) -> Any:
    try:
        return s3_client(connections)
    except ImportError as error:
        raise StoreFailed(
            "this Python has no boto3, which s3:// needs",
            next_step="warm the cache with /usr/bin/python3 -m toolkit.datasets",
        ) from error


@contextmanager
def _store_errors(url: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        is_transient = status in _TRANSIENT_STATUSES or details.get("Code") in _TRANSIENT_CODES
        error_class = StoreUnreachable if is_transient else StoreFailed
        raise error_class(f"{url}: {details.get('Code')}: {details.get('Message')}") from error
    except (BotoCoreError, OSError) as error:
        raise StoreUnreachable(f"{url}: {error}") from error
