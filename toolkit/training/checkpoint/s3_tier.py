"""Keep checkpoints in S3: uploads go on after a kill, and every part is verified.

    s3://bucket/prefix/step-00000120.000007/{…, manifest.json, COMMITTED}

A file's parts are its blocks. Each block is read back and compared with the hash that was made
while training wrote it. S3 compares the bytes that arrive with the SHA-256 of the verified block.

No name is used twice (`replication.last_number`), so parts of an upload that was cut short count.
They are compared all the same: an object by the digest in its metadata, a part by its hash.
"""

import os
from collections.abc import Iterable
from functools import cached_property
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
from toolkit.training.io import parallel
from toolkit.training.io.cluster_info import site_facts
from toolkit.training.io.s3_bucket import MultipartUpload, S3Bucket, checksum
from toolkit.training.io.s3_client import s3_client
from toolkit.training.run_folder.checkpoint_names import COMMITTED, NAME

_DIGEST = "toolkit-digest"  # a key of an object's metadata
_CONNECTIONS = 10
_PARALLEL_PARTS = 4  # parts under way: 64 MiB of memory, and enough to fill most instances' network


class S3Tier:
    """A tier that is a prefix in a bucket, for one run.

    A stop does not wait for it, because the next attempt's save fills it again. A run that moves
    between filesystems needs `outlives_notice`: its next attempt has nothing but this tier.
    """

    def __init__(
        self, bucket: str, prefix: str, *, outlives_notice: bool = False, client: Any = None
    ) -> None:
        self._bucket_name, self._prefix = bucket, prefix.strip("/")
        self.outlives_notice = outlives_notice
        self._client = client

    @classmethod
    def of_cluster(cls, prefix: str, *, outlives_notice: bool = False) -> Self:
        """Return the tier under `prefix` of the cluster's place.

        It is TOOLKIT_CHECKPOINTS, else `training.checkpoints` in cluster.yaml. Raises LookupError
        without one.
        """
        url = os.environ.get("TOOLKIT_CHECKPOINTS") or str(site_facts().get("checkpoints") or "")
        if not url:
            raise LookupError(
                "no place in S3 is named for checkpoints: set training.checkpoints in cluster.yaml,"
                " or TOOLKIT_CHECKPOINTS=s3://bucket/prefix where no cluster.yaml holds"
            )
        bucket, _, folder = url.removeprefix("s3://").partition("/")
        return cls(bucket, f"{folder}/{prefix}", outlives_notice=outlives_notice)

    def names(self) -> list[str]:
        folders = [_folder(key) for key in self._keys("") if key.endswith(f"/{COMMITTED}")]
        return [name for name in folders if NAME.fullmatch(name)]

    def unfinished(self) -> list[str]:
        upload_keys = [upload["Key"] for upload in self._bucket.uploads(f"{self._prefix}/")]
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
                raise Corrupt(
                    f"{name}/{entry.name}: the content in S3 differs from what was written"
                )

    def remove(self, name: str) -> None:
        self._delete(self._key(name, COMMITTED))
        for upload in self._bucket.uploads(self._key(name, "")):
            self._bucket.abort(upload)
        for key in self._keys(f"{name}/"):
            self._delete(key)

    def _upload(self, folder: Path, entry: FileEntry) -> None:
        key = self._key(folder.name, entry.name)
        upload = MultipartUpload(self._bucket, key, Metadata={_DIGEST: entry.digest})

        def send(number: int, _: memoryview) -> None:
            upload.send(number, read_block(folder, entry, number))

        parallel.run(iter(range(len(entry.blocks))), send, workers=_PARALLEL_PARTS)
        upload.complete()

    def _keys(self, prefix: str) -> list[str]:
        return [item["Key"] for item in self._bucket.objects(f"{self._prefix}/{prefix}")]

    def _delete(self, key: str) -> None:
        self._bucket.call("delete_object", Key=key)

    def _put_object(self, name: str, file: str, content: bytes, digest: str = "") -> None:
        self._bucket.call(
            "put_object",
            Key=self._key(name, file),
            Body=content,
            ChecksumSHA256=checksum(content),
            Metadata={_DIGEST: digest} if digest else {},
        )

    def _get_object(self, name: str, file: str) -> Any:
        response = self._bucket.call("get_object", if_absent=None, Key=self._key(name, file))
        if response is None:
            raise Corrupt(f"{name}/{file}: S3 has no such object")
        return response["Body"]

    def _digest(self, name: str, file: str) -> str | None:
        """Return the digest in the object's metadata, None without an object."""
        response = self._bucket.call("head_object", if_absent=None, Key=self._key(name, file))
        return None if response is None else str(response["Metadata"].get(_DIGEST, ""))

    def _key(self, name: str, file: str) -> str:
        return f"{self._prefix}/{name}/{file}"

    @cached_property
    def _bucket(self) -> S3Bucket:
        return S3Bucket(self._bucket_name, self._client or s3_client(_CONNECTIONS))


def _folder(key: str) -> str:
    return key.split("/")[-2]
