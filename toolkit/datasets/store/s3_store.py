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
from toolkit.training.io.s3_bucket import CONFLICT_CODE, CONFLICT_PAUSES, MultipartUpload, S3Bucket
from toolkit.training.io.s3_client import s3_client

MOST_PARTS = 10_000  # S3's own limit
_DELETE_BATCH = 1000
_TRANSIENT_STATUSES = (429, *range(500, 600))
_TRANSIENT_CODES = ("RequestTimeout", "ExpiredToken", CONFLICT_CODE)  # 400, 400 and 409


class S3Store(Store):
    """A store in a bucket. boto3 finds the credentials.

    Region and endpoint come from boto3 too, else from the cluster's settings.
    """

    workers = 16

    def __init__(self, bucket: str, prefix: str, *, client: Any = None) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        errors = partial(_store_errors, f"s3://{bucket}")
        self._bucket = S3Bucket(bucket, client or _client(self.workers), errors=errors)

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
        return self._bucket.put_new(self._prefix + key, content)

    def write_same(self, key: str, content: bytes) -> None:
        if self.write_new(key, content):
            return
        if self.read(key) != content:
            raise _other_content(self._bucket, self._prefix + key)
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
        if _is_stored(self._bucket, key, file):
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
    def __init__(self, bucket: S3Bucket, key: str, file: File) -> None:
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


def _is_stored(bucket: S3Bucket, key: str, file: File) -> bool:
    """Return whether the bucket has the file's content.

    Any job may add objects, and none may replace one. So a wrong object stays until a person
    deletes it. Raises ContentCorrupt for such an object.
    """
    answer = bucket.call("head_object", if_absent=None, Key=key, ChecksumMode="ENABLED")
    if answer is None:
        return False
    if answer["ContentLength"] != file.size:
        raise _other_content(bucket, key)
    # Of an upload in parts, S3 keeps the hash over the parts' hashes and `-NUMBER`. A file's name
    # in the store is the same hash, if each part is one chunk.
    stored_hash = str(answer.get("ChecksumSHA256", ""))
    if len(file.chunks) > 1:
        stored_hash = stored_hash.partition("-")[0]
    has_larger_parts = len(file.chunks) > MOST_PARTS  # above 160 GB the size must do
    is_expected = stored_hash == _base64(file.object.removeprefix("t"))
    if not (has_larger_parts or is_expected or _reads_as_expected(bucket, key, file)):
        raise _other_content(bucket, key)
    return True


def _reads_as_expected(bucket: S3Bucket, key: str, file: File) -> bool:
    """Read an object, and return whether it is the file's content."""
    content, buffer = _StoredContent(bucket, key, file), memoryview(bytearray(BUFFER))
    return all(
        chunks.digest(content.pieces(span, buffer)) == expected_hash
        for span, expected_hash in zip(chunks.spans(file.size), file.chunks, strict=True)
    )


def _other_content(bucket: S3Bucket, key: str) -> ContentCorrupt:
    url = f"s3://{bucket.name}/{key}"
    return ContentCorrupt(
        f"{url} has other content than its name says, and a job may not replace it",
        next_step=f"a person with rights of their own deletes it (aws s3 rm {url}); then add again",
    )


class _SmallUpload(Upload):
    """A file of one chunk: one request, which S3 checks against the hash."""

    def __init__(self, bucket: S3Bucket, key: str, file: File) -> None:
        self._bucket, self._key, self._file = bucket, key, file

    def missing(self) -> Sequence[Span]:
        return tuple(chunks.spans(self._file.size))

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        content = _read_checked(self._file, source, span, buffer)
        sha256 = _base64(self._file.chunks[0])
        options = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": sha256}
        if not self._bucket.put_new(self._key, content, **options):
            _is_stored(self._bucket, self._key, self._file)  # another process was quicker

    def abandon(self) -> None:
        return


class _LargeUpload(Upload):
    """A file of several chunks: an upload in parts, continued after a kill."""

    def __init__(self, bucket: S3Bucket, key: str, file: File) -> None:
        self._bucket, self._key, self._file = bucket, key, file
        self._upload = MultipartUpload(bucket, key)
        self._sources: dict[Span, Readable] = {}
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
        self._sources[span] = source

    def complete(self) -> None:
        """Make the object appear, unless another process was quicker.

        After a conflict all parts are sent again. Parts that were not used go with the stale
        uploads.
        """
        for pause in CONFLICT_PAUSES:
            if self._try_complete(if_conflict=False):
                return
            self._bucket.sleep(pause)
            self._send_again()
        self._try_complete()

    def _try_complete(self, **conditions: Any) -> bool:
        """Return whether the object is there now."""
        answer = self._upload.complete(if_exists=None, IfNoneMatch="*", **conditions)
        if answer is None:
            _is_stored(self._bucket, self._key, self._file)
        return answer is not False

    def _send_again(self) -> None:
        self._upload = MultipartUpload(self._bucket, self._key, anew=True)
        buffer = memoryview(bytearray(BUFFER))
        for span, source in list(self._sources.items()):
            self.send(source, span, buffer)

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

    from toolkit.training.io.sendable_credentials import UnsendableCredentialsError

    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        is_transient = status in _TRANSIENT_STATUSES or details.get("Code") in _TRANSIENT_CODES
        error_class = StoreUnreachable if is_transient else StoreFailed
        raise error_class(f"{url}: {details.get('Code')}: {details.get('Message')}") from error
    except UnsendableCredentialsError as error:
        next_step = "write the credentials again, without the character"
        raise StoreFailed(f"{url}: {error}", next_step=next_step) from error
    except NoCredentialsError as error:
        raise StoreFailed(
            f"{url}: this process has no AWS credentials",
            next_step="on a cluster, run it in a job: put srun before the command;"
            " on racks, set AWS_CONFIG_FILE",
        ) from error
    except (BotoCoreError, OSError) as error:
        raise StoreUnreachable(f"{url}: {error}") from error
