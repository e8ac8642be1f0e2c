"""Keep checkpoints in S3: uploads go on after a kill, and every part is verified.

    s3://bucket/prefix/step-00000120.000007/{…, manifest.json, COMMITTED}

A file's parts are its blocks. Each block is read back and compared with the hash that was made
while training wrote it. S3 compares the bytes that arrive with the SHA-256 of the verified block.

No name is used twice (`replication.last_number`), so parts of an upload that was cut short count.
They are compared all the same: an object by the digest in its metadata, a part by its SHA-256 if S3
reports it.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Self

from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.hashed_file import (
    BLOCK,
    FileEntry,
    HashingWriter,
    read_block,
    read_file,
)
from toolkit.training.checkpoint.manifest import MANIFEST, Manifest
from toolkit.training.errors import Corrupt
from toolkit.training.io.cluster_info import site_facts
from toolkit.training.io.s3_client import s3_client
from toolkit.training.run_folder.checkpoint_names import COMMITTED, NAME

_DIGEST = "toolkit-digest"  # a key of an object's metadata
_CONNECTIONS = 10
_PARALLEL_PARTS = 4  # parts under way: 64 MiB of memory, and enough to fill most instances' network


class S3Tier:
    """A tier that is a prefix in a bucket, for one run.

    A stop does not wait for it: the next attempt's save fills it again.
    """

    outlives_notice = False

    def __init__(self, bucket: str, prefix: str, *, client: Any = None) -> None:
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self._client = client

    @classmethod
    def of_cluster(cls, prefix: str) -> Self:
        """Return the tier under `prefix` of the cluster's place.

        It is `training.checkpoints` in cluster.yaml. Raises LookupError without one.
        """
        url = str(site_facts().get("checkpoints") or "")
        if not url:
            raise LookupError("cluster.yaml gives checkpoints no place in S3: training.checkpoints")
        bucket, _, folder = url.removeprefix("s3://").partition("/")
        return cls(bucket, f"{folder}/{prefix}")

    def names(self) -> list[str]:
        folders = [_folder(key) for key in self._keys("") if key.endswith(f"/{COMMITTED}")]
        return [name for name in folders if NAME.fullmatch(name)]

    def unfinished(self) -> list[str]:
        upload_keys = [upload["Key"] for upload in self._uploads(f"{self._prefix}/")]
        all_names = {_folder(key) for key in (*self._keys(""), *upload_keys)}
        return sorted(name for name in all_names - set(self.names()) if NAME.fullmatch(name))

    def push(self, folder: Path, entries: Iterable[FileEntry]) -> None:
        for entry in entries:
            if self._digest(folder.name, entry.name) == entry.digest:
                continue  # an object appears whole or not at all
            if len(entry.blocks) <= 1:
                self._put_object(folder.name, entry.name, read_file(folder, entry), entry.digest)
            else:
                self._upload(folder, entry)

    def commit(self, folder: Path) -> None:
        for name in (MANIFEST, COMMITTED):
            self._put_object(folder.name, name, (folder / name).read_bytes())

    def manifest(self, name: str) -> tuple[Manifest, bytes]:
        commit_bytes: bytes = self._get_object(name, COMMITTED).read()
        content: bytes = self._get_object(name, MANIFEST).read()
        if commit_bytes != manifest.commit_content(content):
            raise Corrupt(f"{name}: {MANIFEST} in S3 is not the one that was committed")
        return manifest.parse(name, content), content

    def fetch(self, name: str, entries: Iterable[FileEntry], folder: Path) -> None:
        for entry in entries:
            body = self._get_object(name, entry.name)
            with HashingWriter(folder / entry.name, entry.hash) as writer:
                while block := body.read(BLOCK):
                    writer.write(block)
            if writer.entry() != entry:
                raise Corrupt(f"{name}/{entry.name}: S3 has other bytes than were written")

    def remove(self, name: str) -> None:
        self._s3.delete_object(Bucket=self._bucket, Key=self._key(name, COMMITTED))
        prefix = self._key(name, "")
        for upload in self._uploads(prefix):
            self._s3.abort_multipart_upload(
                Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
        for key in self._keys(f"{name}/"):
            self._s3.delete_object(Bucket=self._bucket, Key=key)

    def _upload(self, folder: Path, entry: FileEntry) -> None:
        key = self._key(folder.name, entry.name)
        upload, there = self._resume_or_create(key, entry.digest)

        def send(number: int) -> dict[str, Any]:
            content = read_block(folder, entry, number)
            part = {"PartNumber": number + 1, "ChecksumSHA256": _checksum(content)}
            done = there.get(number)
            if done is None or (part | done)["ChecksumSHA256"] != part["ChecksumSHA256"]:
                place = {"Bucket": self._bucket, "Key": key, "UploadId": upload}
                done = self._s3.upload_part(**place, **part, Body=content)
            return part | {"ETag": done["ETag"]}

        def sent(number: int) -> dict[str, Any] | BaseException:
            try:
                return send(number)
            except BaseException as error:  # noqa: BLE001  # raised below: the pool would lose it
                return error

        # The pool's threads are daemons: a process that stops does not wait for an upload.
        with ThreadPool(_PARALLEL_PARTS) as senders:
            parts = senders.map(sent, range(len(entry.blocks)), chunksize=1)
        for part in parts:
            if isinstance(part, BaseException):
                raise part
        told = [part for part in parts if isinstance(part, dict)]
        self._s3.complete_multipart_upload(
            Bucket=self._bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": told}
        )

    def _resume_or_create(self, key: str, digest: str) -> tuple[str, dict[int, dict[str, Any]]]:
        """Return the key's upload that was cut short, or a new one.

        With it, its parts by the numbers of their blocks.
        """
        for upload in self._uploads(key):
            if upload["Key"] != key:
                continue
            known = {"Bucket": self._bucket, "Key": key, "UploadId": upload["UploadId"]}
            pages = self._s3.get_paginator("list_parts").paginate(**known)
            parts = [part for page in pages for part in page.get("Parts", [])]
            return upload["UploadId"], {part["PartNumber"] - 1: part for part in parts}
        made = self._s3.create_multipart_upload(
            Bucket=self._bucket, Key=key, ChecksumAlgorithm="SHA256", Metadata={_DIGEST: digest}
        )
        return made["UploadId"], {}

    def _keys(self, prefix: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}/{prefix}"
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def _uploads(self, prefix: str) -> list[dict[str, Any]]:
        pages = self._s3.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return [upload for page in pages for upload in page.get("Uploads", [])]

    def _put_object(self, name: str, file: str, content: bytes, digest: str = "") -> None:
        self._s3.put_object(
            Bucket=self._bucket,
            Key=self._key(name, file),
            Body=content,
            ChecksumSHA256=_checksum(content),
            Metadata={_DIGEST: digest} if digest else {},
        )

    def _get_object(self, name: str, file: str) -> Any:
        response = self._call_or_none(self._s3.get_object, name, file)
        if response is None:
            raise Corrupt(f"{name}/{file}: S3 has no such object")
        return response["Body"]

    def _call_or_none(self, operation: Callable[..., Any], name: str, file: str) -> Any:
        """Return S3's answer about an object, None when there is none."""
        from botocore.exceptions import ClientError

        try:
            return operation(Bucket=self._bucket, Key=self._key(name, file))
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                return None
            raise

    def _digest(self, name: str, file: str) -> str | None:
        """Return the digest in the object's metadata, None without an object."""
        response = self._call_or_none(self._s3.head_object, name, file)
        return None if response is None else str(response["Metadata"].get(_DIGEST, ""))

    def _key(self, name: str, file: str) -> str:
        return f"{self._prefix}/{name}/{file}"

    @property
    def _s3(self) -> Any:
        if self._client is None:
            self._client = s3_client(_CONNECTIONS)
        return self._client


def _folder(key: str) -> str:
    return key.split("/")[-2]


def _checksum(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()
