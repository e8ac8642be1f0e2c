"""A store in a folder that all nodes mount."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.datasets import chunks
from toolkit.datasets.chunks import Bytes, Readable, Span
from toolkit.datasets.errors import ContentCorrupt, SourceChanged, StoreFailed, StoreUnreachable
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.store.manifest import File
from toolkit.datasets.store.port import Store, StoreItem, Upload, object_key
from toolkit.datasets.store.transfer import LocalFile, write_chunk
from toolkit.training.io import parallel

_INCOMING = "incoming"
_PERMANENT_ERRORS = (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


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
        with _store_errors(self.root):
            try:
                return self._path(key).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, key: str, content: bytes) -> None:
        path = self._path(key)
        with _store_errors(self.root):
            self._disk.make_folder(path.parent, within=self.root)
            if _is_another_users(path) and self.read(key) == content:
                # This user may not replace it, and need not.
                with suppress(PermissionError):
                    self._disk.touch(path)
            else:
                self._disk.write_file(path, content)

    def write_new(self, key: str, content: bytes) -> bool:
        temporary_path = self._path(f"{_INCOMING}/{uuid.uuid4().hex}")
        with _store_errors(self.root):
            for folder in (temporary_path.parent, self._path(key).parent):
                self._disk.make_folder(folder, within=self.root)
            self._disk.write_file(temporary_path, content)
            try:
                self._disk.link(temporary_path, self._path(key))
            except FileExistsError:
                return False
            finally:
                self._disk.remove(temporary_path)
        return True

    def write_same(self, key: str, content: bytes) -> None:
        self.write(key, content)  # it makes the record young, also another user's

    def list(self, prefix: str) -> Iterator[StoreItem]:
        folder = self._path(prefix.rpartition("/")[0]) if "/" in prefix else self.root
        with _store_errors(self.root):
            for path in _walk_files(folder):
                key = path.relative_to(self.root).as_posix()
                if not key.startswith(prefix) or path.name.startswith("."):
                    continue
                with suppress(FileNotFoundError):  # deleted since it was listed
                    status = path.stat()
                    yield StoreItem(key, status.st_size, status.st_mtime)

    def delete(self, keys: Sequence[str]) -> None:
        with _store_errors(self.root):
            for key in keys:
                self._disk.remove(self._path(key))

    def upload(self, file: File) -> Upload | None:
        target = self._path(object_key(file))
        with _store_errors(self.root):
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
            return _IncomingFile(file, self._path(f"{_INCOMING}/{file.object}"), target, self._disk)

    def finish(self, uploads: Sequence[Upload]) -> None:
        incoming_files = [upload for upload in uploads if isinstance(upload, _IncomingFile)]
        with _store_errors(self.root):
            if incoming_files:
                self._disk.sync(self._path(_INCOMING))
            for upload in incoming_files:
                upload.publish()

    def open(self, file: File) -> Readable:
        return _StoredFile(f"{self.url}/{object_key(file)}", file)

    def delete_stale_uploads(self, cutoff: float) -> None:
        with _store_errors(self.root):
            for path in _walk_files(self._path(_INCOMING)):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < cutoff:
                        self._disk.remove(path)

    def _path(self, key: str) -> Path:
        return self.root / key


class _IncomingFile(Upload):
    """A file under `incoming/`, locked by its writer; a dead writer's file is continued."""

    def __init__(self, file: File, path: Path, target: Path, disk: Disk) -> None:
        self._file, self._target, self._disk = file, target, disk
        self._lock = _lock_unfinished(path) or Lock(
            path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        )
        self._path = self._lock.path
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            self._is_resumed = 0 < file.size == os.fstat(descriptor).st_size
            self._disk.resize(descriptor, file.size)
        finally:
            os.close(descriptor)

    def missing(self) -> Sequence[Span]:
        all_spans = tuple(chunks.spans(self._file.size))
        if not self._is_resumed:
            return all_spans
        incoming_file, buffer = LocalFile(self._path), memoryview(bytearray(parallel.BUFFER))
        return tuple(
            span
            for span, expected_hash in zip(all_spans, self._file.chunks, strict=True)
            if chunks.digest(incoming_file.pieces(span, buffer)) != expected_hash
        )

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        expected_hash = self._file.chunks[span.offset // chunks.CHUNK]
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            is_expected = write_chunk(
                source.pieces(span, buffer), descriptor, span, expected_hash, self._disk
            )
        finally:
            os.close(descriptor)
        if not is_expected:
            raise SourceChanged(
                f"{self._file.path} changed while it was added", next_step="add the folder again"
            )

    def abandon(self) -> None:
        self._lock.close()

    def publish(self) -> None:
        self._disk.rename(self._path, self._target)
        self._disk.protect(self._target)
        self._lock.close()


class _StoredFile(Readable):
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
            raise _error_class(error)(f"the store's {self._path}: {error.strerror}") from error


def _is_another_users(path: Path) -> bool:
    try:
        return path.stat().st_uid != os.geteuid()
    except FileNotFoundError:
        return False


def _lock_unfinished(path: Path) -> Lock | None:
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


def _walk_files(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            items = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in items:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk_files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


@contextmanager
def _store_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the store {root}: {error.strerror}: {error.filename}"
        raise _error_class(error)(message) from error


def _error_class(error: OSError) -> type[StoreFailed]:
    return StoreFailed if isinstance(error, _PERMANENT_ERRORS) else StoreUnreachable
