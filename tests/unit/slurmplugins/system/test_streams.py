"""Programs write to compressed files, and read from them."""

from __future__ import annotations

import gzip
import hashlib
from typing import TYPE_CHECKING

import pytest

from slurmplugins.system import streams
from slurmplugins.system.streams import SystemStreams

if TYPE_CHECKING:
    from pathlib import Path

LINES = 200_000


def test_an_output_is_compressed_into_a_private_file(tmp_path: Path):
    path = tmp_path / "dump.gz"
    result = SystemStreams().save(["/usr/bin/seq", str(LINES)], path)
    assert result.returncode == 0
    assert gzip.decompress(path.read_bytes()).splitlines()[-1] == str(LINES).encode()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_same_output_gives_the_same_bytes(tmp_path: Path):
    for name in ("a", "b"):
        SystemStreams().save(["/usr/bin/seq", "9"], tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failed_program_is_a_result_with_its_words(tmp_path: Path):
    result = SystemStreams().save(["/usr/bin/cat", "/nowhere"], tmp_path / "dump.gz")
    assert result.returncode == 1
    assert "/nowhere" in result.stderr
    missing = SystemStreams().save(["/usr/bin/no-such-program"], tmp_path / "other.gz")
    assert missing.returncode == 127


def test_an_existing_file_is_not_written_over(tmp_path: Path):
    (tmp_path / "dump.gz").write_text("mine")
    with pytest.raises(FileExistsError):
        SystemStreams().save(["/usr/bin/seq", "9"], tmp_path / "dump.gz")


def test_a_file_is_fed_to_a_program(tmp_path: Path):
    source, target = tmp_path / "dump.gz", tmp_path / "copy"
    source.write_bytes(gzip.compress(b"a\n" * LINES))
    result = SystemStreams().feed(["/usr/bin/dd", f"of={target}", "status=none"], source)
    assert result.returncode == 0
    assert target.read_bytes() == b"a\n" * LINES


def test_a_program_that_ends_before_its_input_does_is_a_result(tmp_path: Path):
    source = tmp_path / "dump.gz"
    source.write_bytes(gzip.compress(b"a\n" * 10 * LINES))
    result = SystemStreams().feed(["/usr/bin/cat", "/nowhere"], source)
    assert result.returncode == 1
    assert "/nowhere" in result.stderr


def test_a_file_that_is_cut_short_is_an_error(tmp_path: Path):
    source = tmp_path / "dump.gz"
    source.write_bytes(gzip.compress(b"a\n" * LINES)[:-20])
    with pytest.raises(EOFError):
        SystemStreams().feed(["/usr/bin/dd", "of=/dev/null", "status=none"], source)


def test_the_hash_is_that_of_the_files_bytes(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"content")
    assert streams.sha256(tmp_path / "file") == hashlib.sha256(b"content").hexdigest()
