"""The scan of a folder: a manifest of its own files alone.

A symbolic link that leads outside is refused.
"""

import os
import socket

import pytest

from tests.fakes.datasets import described, write_tree
from toolkit.datasets.errors import DatasetUnknown, DataStopped, NameRefused, SourceChanged
from toolkit.datasets.store import scan as scanning
from toolkit.datasets.store.scan import ScanMemory, scan

CONTENT = {"a": b"1", "sub/b": b"22", "sub/deep/ü c": b"", "z": b"x" * 500}


@pytest.fixture
def root(tmp_path):
    return write_tree(tmp_path / "data", CONTENT)


def test_the_manifest_of_a_folder_lists_the_files_below_it(root, small_chunks):
    scanned = scan(root)
    assert scanned.manifest == described(CONTENT)
    assert scanned.hashed_files == len(CONTENT)


def test_the_version_depends_on_content_and_paths_alone(root, tmp_path):
    other = write_tree(tmp_path / "elsewhere", dict(reversed(CONTENT.items())))
    (other / "empty folder").mkdir()
    (other / "a").chmod(0o700)
    os.utime(other / "z", (1, 1))
    assert scan(other).manifest.version == scan(root).manifest.version


def test_a_symbolic_link_to_a_file_inside_is_scanned_as_that_file(root, tmp_path):
    (root / "same").symlink_to("sub/b")
    assert scan(root).manifest == described({**CONTENT, "same": b"22"})


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside", "nowhere", "sub", "sub/../../outside", "loop"]
)
def test_a_symbolic_link_that_leads_to_no_file_inside_is_refused(root, tmp_path, target):
    (tmp_path / "outside").write_text("secret")
    (root / "loop").symlink_to(target)
    with pytest.raises((NameRefused, OSError, RuntimeError)):
        scan(root)


@pytest.mark.parametrize("name", [b"new\nline", b"bell\x07", b"\xff\xfe", b"del\x7f", b"\xc2\x85"])
def test_an_unprintable_file_name_is_refused_with_a_printable_message(root, name):
    (root / os.fsdecode(name)).write_text("x")
    with pytest.raises(NameRefused) as refusal:
        scan(root)
    assert refusal.value.message.isprintable()


def test_a_pipe_or_socket_is_refused(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(NameRefused):
        scan(root)
    (root / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "s"))
        with pytest.raises(NameRefused):
            scan(root)


def test_a_path_that_is_no_folder_is_unknown(tmp_path):
    with pytest.raises(DatasetUnknown):
        scan(tmp_path / "nothing")


def age(root, seconds=3600):
    """Set the files' times to a while ago."""
    for path in root.rglob("*"):
        if path.is_file():
            before = path.stat().st_mtime - seconds
            os.utime(path, (before, before))


def test_unchanged_files_are_not_hashed_again(root, tmp_path):
    age(root)
    memory = ScanMemory(tmp_path / "memory", root)
    first = scan(root, memory=memory)
    assert (first.hashed_files, scan(root, memory=memory).hashed_files) == (len(CONTENT), 0)
    (root / "a").write_bytes(b"2")
    (root / "new").write_bytes(b"3")
    again = scan(root, memory=memory)
    assert again.hashed_files == 2
    assert again.manifest == described({**CONTENT, "a": b"2", "new": b"3"})


def test_a_file_that_just_changed_is_hashed_again(root, tmp_path):
    """Scan again at once, when a change could be invisible.

    New content may have the same size within the same tick of the clock. Only reading shows it.
    """
    memory = ScanMemory(tmp_path / "memory", root)
    scan(root, memory=memory)
    assert scan(root, memory=memory).hashed_files == len(CONTENT)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": 3}', b'{"a": [1, 2, 3, [4]]}'])
def test_a_damaged_scan_memory_is_ignored(root, tmp_path, content):
    age(root)
    memory = ScanMemory(tmp_path / "memory", root)
    scan(root, memory=memory)
    (path,) = (tmp_path / "memory").iterdir()
    path.write_bytes(content)
    assert scan(root, memory=memory).manifest == described(CONTENT)


def test_a_file_that_changes_during_the_scan_is_refused(root, monkeypatch):
    def change_file(pieces):
        (root / "z").write_bytes(b"y" * 501)
        return "0" * 64

    monkeypatch.setattr(scanning.chunks, "digest", change_file)
    with pytest.raises(SourceChanged):
        scan(root)


def test_a_stop_request_ends_a_scan(root, monkeypatch):
    monkeypatch.setattr(scanning.parallel, "TICK_SECONDS", 0.0)
    real_digest = scanning.chunks.digest
    stop_checks = []

    def digest(pieces):
        while not stop_checks:
            pass
        return real_digest(pieces)

    monkeypatch.setattr(scanning.chunks, "digest", digest)
    with pytest.raises(DataStopped):
        scan(root, should_stop=lambda: bool(stop_checks.append(1) or True))
