"""A log file that grows, is rotated, cut, replaced, or is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurmplugins.logs.log_file import LogFile
from slurmplugins.logs.source import MOST_LINE
from slurmplugins.system import logger
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

MUCH = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slurmd.log"


def source(path: Path, position: str = "") -> LogFile:
    return LogFile(path, "slurmd", FakeClock(), position)


def texts(file: LogFile, most_bytes: int = MUCH, *, last: bool = False) -> list[str]:
    """Read and accept."""
    lines = file.read(most_bytes, last=last)
    file.accept()
    return [line.text for line in lines]


def test_a_file_that_is_not_there_yet_has_no_lines(path: Path):
    file = source(path)
    assert texts(file) == []
    path.write_text("first\n")
    assert texts(file) == ["first"]


def test_lines_come_once_and_only_when_they_are_complete(path: Path):
    file = source(path)
    path.write_text("one\ntwo\nthr")
    assert texts(file) == ["one", "two"]
    assert texts(file) == []
    with path.open("a") as more:
        more.write("ee\n")
    assert texts(file) == ["three"]


def test_the_last_read_takes_a_line_without_an_end(path: Path):
    path.write_text("whole\ndying wor")
    assert texts(source(path), last=True) == ["whole", "dying wor"]


def test_lines_that_were_not_accepted_come_again(path: Path):
    file = source(path)
    path.write_text("one\n")
    assert file.read(MUCH) == file.read(MUCH) != ()
    file.accept()
    assert file.read(MUCH) == ()


def test_a_restart_goes_on_behind_the_accepted_lines(path: Path):
    path.write_text("old\n")
    file = source(path)
    assert texts(file) == ["old"]
    with path.open("a") as more:
        more.write("new\n")
    assert texts(source(path, file.position)) == ["new"]


def test_the_rest_of_a_rotated_file_comes_before_the_new_one(path: Path):
    """Write with the log that rotates."""
    file = source(path)
    write = logger.to_file(path, limit=30)
    write("a" * 19 + "\n")
    assert len(texts(file)) == 1
    write("b" * 19 + "\n")  # rotates behind itself
    write("c" * 19 + "\n")
    assert [text[0] for text in texts(file)] == ["b"]
    assert [text[0] for text in texts(file)] == ["c"]
    assert texts(file) == []


def test_a_file_that_was_cut_is_read_from_its_beginning(path: Path):
    path.write_text("a long line of the first run\n")
    file = source(path)
    texts(file)
    os.truncate(path, 0)
    path.write_text("short\n")
    assert texts(file) == ["short"]


def test_a_read_is_bounded_and_the_rest_follows(path: Path):
    path.write_text("".join(f"line {number:04d}\n" for number in range(1000)))
    file = source(path)
    reads = []
    while lines := texts(file, 1024):
        reads.append(lines)
    assert all(len(lines) <= 1024 // 10 for lines in reads)
    assert [line for lines in reads for line in lines] == [f"line {n:04d}" for n in range(1000)]


def test_a_line_longer_than_a_read_does_not_stop_the_rest(path: Path):
    path.write_text("x" * 5000 + "\nnext\n")
    file = source(path)
    found = []
    while lines := texts(file, 1024):
        found += lines
    assert found[-1] == "next"
    assert "".join(found[:-1]) == "x" * 5000


def test_a_very_long_line_is_cut(path: Path):
    path.write_text("y" * (MOST_LINE + 100) + "\n")
    (text,) = texts(source(path))
    assert text == "y" * MOST_LINE


def test_bytes_that_are_no_text_are_replaced(path: Path):
    path.write_bytes(b"bad \xff\xfe name\n")
    assert texts(source(path)) == ["bad \ufffd\ufffd name"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_regular_file_is_read(path: Path, tmp_path: Path, kind: str):
    """Put another thing there, as the owner of the folder could."""
    secret = tmp_path / "secret"
    secret.write_text("the key\n")
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert texts(source(path)) == []


@pytest.mark.parametrize("position", ["", "x", "1", "1:x", ":", "-1:5"])
def test_a_damaged_position_means_the_beginning(path: Path, position: str):
    path.write_text("one\n")
    assert texts(source(path, position)) == ["one"]


def test_a_rotated_file_is_read_in_whole_lines_too(path: Path):
    path.write_text("".join(f"line {number:04d}\n" for number in range(300)))
    file = source(path)
    texts(file, 100)
    path.rename(path.with_name("slurmd.log.1"))
    path.write_text("after\n")
    found = []
    while lines := texts(file, 1024, last=True):
        found += lines
    assert found == [f"line {number:04d}" for number in range(10, 300)] + ["after"]
