"""Write files durably, and read them in spite of a short server failure.

Content and names are on disk before a write returns. A file is complete before its rename.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ABSENT = (FileNotFoundError, NotADirectoryError)


def path_exists(path: Path) -> bool:
    """Return whether `path` exists.

    Raises OSError when that can't be found out: only the errors in `ABSENT` mean no. From Python
    3.14, `Path.exists`, `is_file` and `is_dir` take every error for a no.
    """
    try:
        path.stat()
    except ABSENT:
        return False
    return True


def list_folder(folder: Path) -> list[Path]:
    """Return the paths in `folder`, none when it does not exist.

    Raises OSError when the folder can't be read.
    """
    try:
        return list(folder.iterdir())
    except ABSENT:
        return []


def fsync_directory(directory: Path) -> None:
    """Make the names in `directory` durable. A rename is not durable before."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: bytes, *, temporary_folder: Path | None = None) -> None:
    """Replace `path` by `content` in one step.

    A reader sees the old bytes or the new ones, also after a crash. The file is written in the
    folder `temporary_folder` (default: beside `path`) and renamed from there.
    """
    temporary = _write_temporary(
        temporary_folder / path.name if temporary_folder else path, content
    )
    temporary.replace(path)
    fsync_directory(path.parent)


def write_first(path: Path, content: bytes) -> bool:
    """Write `path` unless it exists.

    Returns True for the writer that was first. Safe when several processes try at once.
    """
    temporary = _write_temporary(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    fsync_directory(path.parent)
    return True


def read_twice(path: Path, read: Callable[[Path], T]) -> T:
    """Return the result of `read(path)`, trying once more after an OSError.

    The second try may succeed, as after a file server's failover. If it fails with an error of
    `ABSENT`, the file does not exist. After any other error nothing is known of the file.
    """
    try:
        return read(path)
    except OSError:
        return read(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one line of JSON atomically."""
    write_atomic(path, encode_line(value))


def encode_line(value: Mapping[str, Any]) -> bytes:
    """Return one line of JSON, the form of every record here.

    Bash reads some of these records.
    """
    return (json.dumps(value, allow_nan=True) + "\n").encode()


def read_json(path: Path, *, limit: int = 1 << 20) -> dict[str, Any] | None:
    """Return the JSON object in `path`, or None.

    None when there is no file, no object in it, or two tries to read it failed.
    """
    try:
        return load_json(path, limit=limit)
    except OSError:
        return None


def load_json(path: Path, *, limit: int = 1 << 20) -> dict[str, Any] | None:
    """Return the JSON object in `path`, or None when there is none.

    Like `read_json`, but raises OSError when the file can't be read now.
    """

    def content(path: Path) -> bytes:
        with path.open("rb") as stream:
            return stream.read(limit)

    try:
        return _json_object(read_twice(path, content))
    except ABSENT:
        return None


def read_lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the objects of a JSON-lines file in order.

    Yields None for a torn line, and nothing when there is no file.
    """
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.strip():
                    yield _json_object(line)
    except FileNotFoundError:
        return


def _json_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _write_temporary(path: Path, content: bytes) -> Path:
    temporary = path.with_name(
        f".{path.name}.{os.uname().nodename}.{threading.get_native_id()}.tmp"
    )
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return temporary
