"""The journal's lines: whose are sent, and how journalctl is followed."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from slurmplugins.logs.journal import RESTART_SECONDS, UNITS, Journal, arguments, line_of
from slurmplugins.system.command import OutputStream
from tests.fakes.clock import START, FakeClock

SLURM, ADA = "64030", "2001"


def record(text: Any = "hello", cursor: str = "c1", **fields: str) -> dict[str, Any]:
    return {
        "MESSAGE": text,
        "__CURSOR": cursor,
        "__REALTIME_TIMESTAMP": str(int(START * 1e6)),
        "PRIORITY": "6",
        "_UID": "0",
        "_PID": "77",
        "_SYSTEMD_UNIT": "slurmd.service",
        "_TRANSPORT": "stdout",
        **fields,
    }


def unit_of(**fields: str) -> str | None:
    line = line_of(record(**fields), START)
    return line.unit if line else None


@pytest.mark.parametrize(
    ("fields", "unit"),
    [
        ({}, "slurmd"),
        ({"_SYSTEMD_UNIT": "slurm-reconcile.service", "_UID": SLURM}, "slurm-reconcile"),
        ({"_SYSTEMD_UNIT": "mariadb.service", "_UID": "110"}, "mariadb"),
        ({"_TRANSPORT": "kernel", "PRIORITY": "3"}, "kernel"),
        ({"_PID": "1", "_SYSTEMD_UNIT": "init.scope", "PRIORITY": "4"}, "systemd"),
    ],
)
def test_lines_of_the_systems_own_are_sent(fields: dict[str, str], unit: str):
    assert unit_of(**fields) == unit


@pytest.mark.parametrize(
    "fields",
    [
        {"_UID": ADA},  # logger(1) in a job, which is inside slurmd's unit
        {"_UID": "165536"},  # in a container of a user
        {"_UID": "65534"},
        {"_UID": ""},
        {"_SYSTEMD_UNIT": "user@2001.service"},
        {"_SYSTEMD_UNIT": "mlflow.service"},
        {"_TRANSPORT": "kernel"},
        {"_PID": "1", "_SYSTEMD_UNIT": "init.scope"},  # "Started …", at each pass of reconcile
        {"text": " "},
        {"text": None},
        {"text": 7},
    ],
)
def test_other_lines_stay_on_the_machine(fields: dict[str, Any]):
    assert unit_of(**fields) is None


def test_a_message_with_unprintable_bytes_is_a_list_of_numbers():
    line = line_of(record([104, 105, 255, 10, 33]), START)
    assert line is not None
    assert line.text == "hi\ufffd !"
    assert line.at == START


class FakeOutput:
    """A journalctl that says what a test puts in."""

    def __init__(self) -> None:
        self.content = b""
        self.ended = False
        self.closed = False

    def add(self, *records: dict[str, Any]) -> None:
        self.content += b"".join(json.dumps(item).encode() + b"\n" for item in records)

    def read(self, most_bytes: int) -> bytes:
        content, self.content = self.content[:most_bytes], self.content[most_bytes:]
        return content

    def has_ended(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.closed = True


class Stage:
    def __init__(self, position: str = "") -> None:
        self.started: list[list[str]] = []
        self.outputs: list[FakeOutput] = []
        self.clock = FakeClock()
        self.journal = Journal(self.start, self.clock, position)  # type: ignore[arg-type]

    def start(self, argv: Any) -> FakeOutput:
        self.started.append(list(argv))
        self.outputs.append(FakeOutput())
        return self.outputs[-1]

    def texts(self, most_bytes: int = 1 << 20) -> list[str]:
        return [line.text for line in self.journal.read(most_bytes)]


def test_lines_come_again_until_they_are_accepted():
    stage = Stage()
    assert stage.texts() == []
    stage.outputs[0].add(record("one"))
    assert stage.texts() == ["one"]
    stage.outputs[0].add(record("two", cursor="c2"))
    assert stage.texts() == ["one"]
    stage.journal.accept()
    assert stage.journal.position == "c1"
    assert stage.texts() == ["two"]


def test_a_record_that_comes_in_two_reads_is_one_line():
    stage = Stage()
    stage.texts()
    stage.outputs[0].add(record("a whole line"))
    assert stage.texts(40) == []
    assert stage.texts() == ["a whole line"]


def test_damaged_records_are_left_out():
    stage = Stage()
    stage.texts()
    stage.outputs[0].content = b'{"MESSAGE": "half\nnull\n[1]\n'
    stage.outputs[0].add(record("good"))
    assert stage.texts() == ["good"]


def test_a_journalctl_that_ended_is_started_behind_the_last_record_and_not_at_once():
    stage = Stage()
    stage.texts()
    stage.outputs[0].add(record("one", cursor="c9"))
    assert stage.texts() == ["one"]
    stage.journal.accept()
    stage.outputs[0].ended = True
    assert stage.texts() == []
    assert len(stage.started) == 1
    stage.clock.advance(RESTART_SECONDS)
    stage.texts()
    assert "--after-cursor=c9" in stage.started[1]
    assert stage.outputs[0].closed


def test_a_first_start_begins_at_this_boot_and_a_restart_at_its_cursor():
    assert "--boot" in arguments("")
    assert "--boot" not in arguments("c1")
    assert "--after-cursor=c1" in arguments("c1")
    assert {f"_SYSTEMD_UNIT={unit}" for unit in UNITS} < set(arguments(""))


def test_the_output_of_a_running_program_is_read_without_waiting():
    program = "import sys, time; print('ready', flush=True); time.sleep(60)"
    output = OutputStream([sys.executable, "-c", program])
    content = b""
    for _ in range(600):
        content += output.read(100)
        if content:
            break
        time.sleep(0.05)
    assert content == b"ready\n"
    assert output.read(100) == b""
    assert not output.has_ended()
    output.close()
    assert output.has_ended()


def test_a_program_that_is_not_there_has_ended_without_output():
    output = OutputStream(["/nonexistent/journalctl"])
    assert output.has_ended()
    assert output.read(10) == b""
    output.close()
