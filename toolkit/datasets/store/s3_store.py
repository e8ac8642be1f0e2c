"""A store in S3. boto3 is loaded when a store is opened, so that only S3 needs it."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from toolkit.datasets import chunks
from toolkit.datasets.chunks import Bytes, Readable, Span
from toolkit.datasets.errors import ContentCorrupt, SourceChanged, StoreFailed, StoreUnreachable
from toolkit.datasets.store.manifest import File
from toolkit.datasets.store.port import WANTED, Store, StoreItem, Upload, object_key
from toolkit.training.io.parallel import BUFFER
from toolkit.training.io.s3_bucket import Bucket, MultipartUpload
from toolkit.training.io.s3_client import s3_client

MOST_PARTS = 10_000  # S3's own limit
_DELETE_BATCH = 1000
_TRANSIENT_STATUSES = (429, *range(500, 600))
_TRANSIENT_CODES = ("RequestTimeout", "ExpiredToken")  # both are 400


class S3Store(Store):
    """A store in a bucket. boto3 finds the credentials.

    Region and endpoint come from boto3 too, else from the cluster's settings.
    """

    workers = 16

    def __init__(self, bucket: str, prefix: str, *, client: Any = None) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        errors = partial(_store_errors, f"s3://{bucket}")
        self._bucket = Bucket(bucket, client or _client(self.workers), errors=errors)

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

    def write_same(self, key: str, content: bytes) -> None:
        if not self.write_new(key, content):
            self.write(f"{WANTED}{key}", b"")

    def list(self, prefix: str) -> Iterator[StoreItem]:
        for item in self._bucket.objects(self._prefix + prefix):
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
            return _SmallUpload(self._bucket, key, file)
        return _LargeUpload(self._bucket, key, file)

    def finish(self, uploads: Sequence[Upload]) -> None:
        for upload in uploads:
            if isinstance(upload, _LargeUpload):
                upload.complete()

    def open(self, file: File) -> Readable:
        return _StoredContent(self._bucket, self._prefix + object_key(file), file)

    def delete_stale_uploads(self, cutoff: float) -> None:
        for upload in self._bucket.uploads(self._prefix):
            if upload["Initiated"].timestamp() < cutoff:
                self._bucket.abort(upload)


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
        with self._bucket.errors():
            yield from answer["Body"].iter_chunks(BUFFER)


class _SmallUpload(Upload):
    """A file of one chunk: one request, which S3 checks against the hash."""

    def __init__(self, bucket: Bucket, key: str, file: File) -> None:
        self._bucket, self._key, self._file = bucket, key, file

    def missing(self) -> Sequence[Span]:
        return tuple(chunks.spans(self._file.size))

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        content = _read_checked(self._file, source, span, buffer)
        self._bucket.call(
            "put_object",
            if_exists=None,  # another process has added the same content
            Key=self._key,
            Body=content,
            ChecksumSHA256=_base64(self._file.chunks[0]),
            IfNoneMatch="*",
        )

    def abandon(self) -> None:
        return


class _LargeUpload(Upload):
    """A file of several chunks: an upload in parts, continued after a kill."""

    def __init__(self, bucket: Bucket, key: str, file: File) -> None:
        self._file, self._upload = file, MultipartUpload(bucket, key)
        # A part is whole chunks, so that each can be checked: one chunk up to 160 GB, else more.
        self._part_size = chunks.CHUNK * -(-len(file.chunks) // MOST_PARTS)

    def missing(self) -> Sequence[Span]:
        starts = range(0, self._file.size, self._part_size)
        return tuple(
            Span(offset, min(self._part_size, self._file.size - offset)) for offset in starts
        )

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        content = _read_checked(self._file, source, span, buffer)
        self._upload.send(span.offset // self._part_size, content)

    def complete(self) -> None:
        # Where another process was quicker, its object stays; our parts go with the stale uploads.
        self._upload.complete(if_exists=None, IfNoneMatch="*")

    def abandon(self) -> None:
        return  # S3 keeps the parts; `delete_stale_uploads` deletes them in the end


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
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        is_transient = status in _TRANSIENT_STATUSES or details.get("Code") in _TRANSIENT_CODES
        error_class = StoreUnreachable if is_transient else StoreFailed
        raise error_class(f"{url}: {details.get('Code')}: {details.get('Message')}") from error
    except NoCredentialsError as error:
        raise StoreFailed(
            f"{url}: this process has no AWS credentials",
            next_step="on a cluster, run it in a job: put srun before the command",
        ) from error
    except (BotoCoreError, OSError) as error:
        raise StoreUnreachable(f"{url}: {error}") from error
