"""Files in S3: larger than one request takes, and sent in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from slurmplugins.cloud.client import translate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class FileStore(Protocol):
    """A place for files. Each method raises CloudError, and may be repeated."""

    def upload(self, path: Path, key: str) -> None: ...

    def download(self, key: str, path: Path) -> None: ...


class S3Files:
    """An implementation on a bucket. A client is made when it is first needed."""

    def __init__(self, bucket: str, connect: Callable[[], Any]) -> None:
        self._bucket = bucket
        self._connect = connect

    def upload(self, path: Path, key: str) -> None:
        """Write the file's content to an object."""
        try:
            self._transfer().upload_file(str(path), self._bucket, key)
        except Exception as error:
            raise _translated(error) from error

    def download(self, key: str, path: Path) -> None:
        """Write an object's content to a file."""
        try:
            self._transfer().download_file(self._bucket, key, str(path))
        except Exception as error:
            raise _translated(error) from error

    def _transfer(self) -> Any:
        # boto3's own package for it. It takes a botocore client.
        from boto3.s3.transfer import S3Transfer

        return S3Transfer(client=self._connect())


def _translated(error: Exception) -> Exception:
    """Return an error as ours.

    boto3 wraps that of an upload.
    """
    cause = error.__context__ if type(error).__name__ == "S3UploadFailedError" else None
    return translate(cause if isinstance(cause, Exception) else error)
