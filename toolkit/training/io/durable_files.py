"""Durable file writes: what is renamed into place is on disk first, names included."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ABSENT = (FileNotFoundError, NotADirectoryError)


def there(path: Path) -> bool:
    """Whether `path` is there. OSError where that can't be found out: only `ABSENT` is a no.

    From Python 3.14 `Path.exists`, `is_file` and `is_dir` take every error for one.
    """
    try:
        path.stat()
    except ABSENT:
        return False
    return True


def inside(folder: Path) -> list[Path]:
    """What is in `folder`, and nothing where that is not there. OSError as of `there`."""
    try:
        return list(folder.iterdir())
    except ABSENT:
        return []


def fsync_directory(directory: Path) -> None:
    """Make the names in `directory` durable (a rename is not, until this is done)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, content: bytes, *, by_way_of: Path | None = None) -> None:
    """Replace `path` by `content`: a reader, or a crash, sees the old bytes or the new ones.

    It is written in the folder `by_way_of` and renamed from there; by default beside `path`.
    """
    temporary = _write_beside(by_way_of / path.name if by_way_of else path, content)
    temporary.replace(path)
    fsync_directory(path.parent)


def write_first(path: Path, content: bytes) -> bool:
    """Write `path` unless it is there already; True for the writer who was first."""
    temporary = _write_beside(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    fsync_directory(path.parent)
    return True


def read_twice(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` gives; after an error once more, which may be over, as when a server fails over.

    Where that fails too, nothing is known of the file but by one of the errors `ABSENT`.
    """
    try:
        return read(path)
    except OSError:
        return read(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """`write_atomic` of one line of JSON."""
    write_atomic(path, encode(value))


def encode(value: Mapping[str, Any]) -> bytes:
    """One line of JSON, the form of every record here (bash reads some of them)."""
    return (json.dumps(value, allow_nan=True) + "\n").encode()


def read_json(path: Path, *, limit: int = 1 << 20) -> dict[str, Any] | None:
    """The object in `path`; None when there is none that can be read as one, asked for twice."""
    try:
        return find_json(path, limit=limit)
    except OSError:
        return None


def find_json(path: Path, *, limit: int = 1 << 20) -> dict[str, Any] | None:
    """As `read_json`, but OSError where it can't be found out what is there."""

    def content(path: Path) -> bytes:
        with path.open("rb") as stream:
            return stream.read(limit)

    try:
        return _object(read_twice(path, content))
    except ABSENT:
        return None


def read_lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """The objects of a JSON-lines file in order, None for a torn one. No file, no lines."""
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.strip():
                    yield _object(line)
    except FileNotFoundError:
        return


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _write_beside(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return temporary
