"""A store in a folder that all nodes mount."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.datasets import chunks, parallel
from toolkit.datasets.chunks import Bytes, Readable, Span
from toolkit.datasets.errors import ContentCorrupt, SourceChanged, StoreFailed, StoreUnreachable
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.store.manifest import File
from toolkit.datasets.store.port import Item, Store, Upload, object_key
from toolkit.datasets.store.transfer import LocalFile, place

_INCOMING = "incoming"
_REFUSED = (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


class FolderStore(Store):
    """Objects are written under `incoming/`, checked, synced to disk, and renamed into place.

    New files and folders get the root's permissions. In a sticky root that is open to
    all, like /tmp, every user can add content and no user can replace another's.
    """

    def __init__(self, root: Path, *, disk: Disk | None = None) -> None:
        self.root, self.url = root.absolute(), str(root.absolute())
        self._disk = disk or Disk()
        self.workers = parallel.STORE_WORKERS

    def read(self, key: str) -> bytes | None:
        with _told(self.root):
            try:
                return self._path(key).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, key: str, content: bytes) -> None:
        path = self._path(key)
        with _told(self.root):
            self._disk.make_folder(path.parent, within=self.root)
            if _anothers(path) and self.read(key) == content:
                # This user may not replace it, and need not.
                with suppress(PermissionError):
                    self._disk.touch(path)
            else:
                self._disk.write_file(path, content)

    def write_new(self, key: str, content: bytes) -> bool:
        temporary = self._path(f"{_INCOMING}/{uuid.uuid4().hex}")
        with _told(self.root):
            for folder in (temporary.parent, self._path(key).parent):
                self._disk.make_folder(folder, within=self.root)
            self._disk.write_file(temporary, content)
            try:
                self._disk.link(temporary, self._path(key))
            except FileExistsError:
                return False
            finally:
                self._disk.remove(temporary)
        return True

    def list(self, prefix: str) -> Iterator[Item]:
        folder = self._path(prefix.rpartition("/")[0]) if "/" in prefix else self.root
        with _told(self.root):
            for path in _files(folder):
                key = path.relative_to(self.root).as_posix()
                if not key.startswith(prefix) or path.name.startswith("."):
                    continue
                with suppress(FileNotFoundError):  # gone since it was listed
                    facts = path.stat()
                    yield Item(key, facts.st_size, facts.st_mtime)

    def delete(self, keys: Sequence[str]) -> None:
        with _told(self.root):
            for key in keys:
                self._disk.remove(self._path(key))

    def upload(self, file: File) -> Upload | None:
        target = self._path(object_key(file))
        with _told(self.root):
            try:
                if target.stat().st_size == file.size:
                    # Wanted again: make it young for garbage collection. It may be another user's.
                    with suppress(PermissionError):
                        self._disk.touch(target)
                    return None
            except FileNotFoundError:
                pass
            for folder in (self._path(_INCOMING), target.parent):
                self._disk.make_folder(folder, within=self.root)
            return _Incoming(file, self._path(f"{_INCOMING}/{file.object}"), target, self._disk)

    def finish(self, uploads: Sequence[Upload]) -> None:
        ours = [upload for upload in uploads if isinstance(upload, _Incoming)]
        with _told(self.root):
            if ours:
                self._disk.sync(self._path(_INCOMING))
            for upload in ours:
                upload.publish()

    def open(self, file: File) -> Readable:
        return _Object(f"{self.url}/{object_key(file)}", file)

    def tidy(self, before: float) -> None:
        with _told(self.root):
            for path in _files(self._path(_INCOMING)):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < before:
                        self._disk.remove(path)

    def _path(self, key: str) -> Path:
        return self.root / key


class _Incoming(Upload):
    """A file under `incoming/`, locked by its writer; a dead writer's file is continued."""

    def __init__(self, file: File, path: Path, target: Path, disk: Disk) -> None:
        self._file, self._target, self._disk = file, target, disk
        self._lock = _lock(path) or Lock(path.with_name(f"{path.name}.{uuid.uuid4().hex}"))
        self._path = self._lock.path
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            self._resumed = 0 < file.size == os.fstat(descriptor).st_size
            self._disk.resize(descriptor, file.size)
        finally:
            os.close(descriptor)

    def missing(self) -> Sequence[Span]:
        every = tuple(chunks.spans(self._file.size))
        if not self._resumed:
            return every
        there, buffer = LocalFile(self._path), memoryview(bytearray(chunks.BUFFER))
        return tuple(
            span
            for span, expected in zip(every, self._file.chunks, strict=True)
            if chunks.digest(there.pieces(span, buffer)) != expected
        )

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        expected = self._file.chunks[span.offset // chunks.CHUNK]
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            good = place(source.pieces(span, buffer), descriptor, span, expected, self._disk)
        finally:
            os.close(descriptor)
        if not good:
            raise SourceChanged(
                f"{self._file.path} changed while it was added", next_step="run it again"
            )

    def abandon(self) -> None:
        self._lock.close()

    def publish(self) -> None:
        self._disk.rename(self._path, self._target)
        self._disk.protect(self._target)
        self._lock.close()


class _Object(Readable):
    """Content in place; its errors are raised as the store's."""

    def __init__(self, path: str, file: File) -> None:
        self._path, self._file = path, file

    def pieces(self, span: Span, buffer: memoryview) -> Iterator[Bytes]:
        try:
            yield from LocalFile(self._path).pieces(span, buffer)
        except FileNotFoundError as error:
            raise ContentCorrupt(
                f"the content of {self._file.path} is not in the store",
                next_step="add the dataset again",
            ) from error
        except OSError as error:
            raise _failed(error)(f"the store's {self._path}: {error.strerror}") from error


def _anothers(path: Path) -> bool:
    try:
        return path.stat().st_uid != os.geteuid()
    except FileNotFoundError:
        return False


def _lock(path: Path) -> Lock | None:
    """Lock an unfinished file to continue it; None if that fails."""
    try:
        lock = Lock(path)
    except PermissionError:
        return None
    # The locked file may have been renamed into place meanwhile.
    if lock.try_exclusive() and lock.is_at_its_path():
        return lock
    lock.close()
    return None


def _files(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


@contextmanager
def _told(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        told = f"the store {root}: {error.strerror}: {error.filename}"
        raise _failed(error)(told) from error


def _failed(error: OSError) -> type[StoreFailed]:
    return StoreFailed if isinstance(error, _REFUSED) else StoreUnreachable
