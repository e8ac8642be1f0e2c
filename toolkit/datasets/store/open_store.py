"""Opens the store that a URL names: a folder, or a bucket."""

import re
from pathlib import Path

from toolkit.datasets.errors import NameRefused
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.port import Store
from toolkit.datasets.store.s3_store import S3Store

_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")


def open_store(url: str) -> Store:
    """Open the store at a folder or `s3://bucket/prefix`.

    Raises NameRefused for another URL.
    """
    if url.startswith("s3://"):
        match = _S3.fullmatch(url)
        if match is None:
            raise NameRefused(
                f"not the URL of a bucket: {url!a}", next_step="give s3://bucket/prefix"
            )
        return S3Store(match[1], (match[2] or "").strip("/"))
    if "://" in url:
        raise NameRefused(
            f"unknown kind of store: {url!a}", next_step="give a folder or s3://bucket/prefix"
        )
    return FolderStore(Path(url))
