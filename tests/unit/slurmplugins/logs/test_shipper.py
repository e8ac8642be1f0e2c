"""The shipper: order, bounds, failures, the end, and what it remembers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.logs.log_file import LogFile
from slurmplugins.logs.shipper import (
    LAST_PASSES,
    LONGEST_PAUSE,
    PASS_BYTES,
    PERIOD,
    Shipper,
    read_positions,
)
from slurmplugins.system.logger import Log
from tests.fakes.clock import START, FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.errors import CloudError
    from slurmplugins.model.log_line import LogLine

THROTTLED = error_codes.error("ThrottlingException", "Rate exceeded")
REFUSED = error_codes.error("InvalidParameterException", "too old")


@dataclass
class FakeStream:
    """A stream that takes lines, or fails as often as a test says."""

    lines: list[LogLine] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    failures: list[CloudError] = field(default_factory=list)
    calls: int = 0

    def put(self, name: str, lines) -> None:
        assert name == "gpu-001/i-1"
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        self.lines += lines
        self.sizes.append(sum(len(line.text) for line in lines))

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


@dataclass
class Known:
    """The stream's name, once a test gives it."""

    name: str | None = "gpu-001/i-1"

    def get(self, *, last: bool) -> str | None:
        del last
        return self.name


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.stream = FakeStream()
        self.name = Known()
        self.events: list[dict] = []
        self.shipper = self.new()

    def new(self) -> Shipper:
        """Return a shipper that starts with the kept positions."""
        kept = read_positions(self.folder / "positions.json")
        files = [self.folder / f"{name}.log" for name in ("slurmd", "node-boot")]
        return Shipper(
            sources=[
                LogFile(path, path.stem, self.clock, kept.get(str(path), "")) for path in files
            ],
            stream=self.stream,
            name=self.name,
            positions=self.folder / "positions.json",
            clock=self.clock,
            log=Log(lambda line: self.events.append(json.loads(line)), self.clock),
        )

    def write(self, text: str, name: str = "slurmd") -> None:
        with (self.folder / f"{name}.log").open("a") as file:
            file.write(text)

    def run_until(self, seconds: float) -> None:
        """Run the service for a time, then end it as systemd does."""
        end = self.clock.monotonic() + seconds

        def stopped(wait: float) -> bool:
            self.clock.advance(wait)
            return self.clock.monotonic() >= end

        self.shipper.run(stopped)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_lines_of_all_sources_are_sent_in_the_order_of_time(stage: Stage):
    stage.write(f'{{"at":{START - 2}}}\n{{"at":{START - 8}}}\n')
    stage.write(f'{{"at":{START - 5}}}\n', "node-boot")
    stage.shipper.ship()
    assert [START - line.at for line in stage.stream.lines] == [8, 5, 2]
    assert [line.unit for line in stage.stream.lines] == ["slurmd", "node-boot", "slurmd"]


def test_without_new_lines_nothing_is_called(stage: Stage):
    stage.write("one\n")
    stage.run_until(20 * PERIOD)
    assert stage.stream.calls == 1


def test_secrets_are_removed_before_a_line_is_sent(stage: Stage):
    stage.write("AWS_SECRET_ACCESS_KEY=abc123\n")
    stage.shipper.ship()
    assert stage.stream.texts == ["AWS_SECRET_ACCESS_KEY=[redacted]"]


def test_nothing_is_sent_before_the_stream_has_a_name(stage: Stage):
    stage.name.name = None
    stage.write("early\n")
    assert not stage.shipper.ship()
    stage.name.name = "gpu-001/i-1"
    stage.shipper.ship()
    assert stage.stream.texts == ["early"]


def test_lines_that_could_not_be_sent_are_sent_later_and_in_order(stage: Stage):
    stage.stream.failures = [THROTTLED] * 3
    stage.write("one\n")
    stage.shipper.ship()
    stage.write("two\n")
    stage.run_until(300)
    assert stage.stream.texts == ["one", "two"]


def test_the_pause_doubles_up_to_a_bound_and_one_line_tells_of_it(stage: Stage):
    stage.stream.failures = [THROTTLED] * 1000
    stage.write("one\n")
    stage.shipper.ship()
    calls = []
    for _ in range(600):
        before = stage.stream.calls
        stage.clock.advance(1)
        stage.shipper.ship()
        if stage.stream.calls > before:
            calls.append(stage.clock.monotonic())
    pauses = [later - earlier for earlier, later in pairwise(calls)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    assert [item["event"] for item in stage.events] == ["logs_not_shipped"]


def test_an_end_while_calls_fail_tries_once_more(stage: Stage):
    stage.stream.failures = [THROTTLED]
    stage.write("last words\n")
    stage.shipper.ship()
    stage.shipper.finish()
    assert stage.stream.texts == ["last words"]


def test_an_end_sends_what_came_since_the_last_look_also_half_a_line(stage: Stage):
    stage.shipper.ship()
    stage.write("slurmd: shutting down\nand the ke")
    stage.shipper.finish()
    assert stage.stream.texts == ["slurmd: shutting down", "and the ke"]


def test_an_end_does_not_take_long_whatever_is_left(stage: Stage):
    stage.write("x" * 99 + "\n")
    stage.write(("y" * 99 + "\n") * (20 * PASS_BYTES // 100))
    stage.shipper.finish()
    assert stage.stream.calls == LAST_PASSES


def test_lines_that_are_never_taken_do_not_hold_up_the_later_ones(stage: Stage):
    stage.stream.failures = [REFUSED]
    stage.write("poison\n")
    stage.shipper.ship()
    stage.write("next\n")
    stage.shipper.ship()
    assert stage.stream.texts == ["next"]
    assert [item["event"] for item in stage.events] == ["log_lines_refused"]


def test_a_backlog_is_sent_in_bounded_calls_and_without_waiting(stage: Stage):
    stage.write("".join(f"line {number:08d} {'z' * 80}\n" for number in range(8_000)))
    stage.run_until(2 * PERIOD)
    assert len(stage.stream.texts) == 8_000
    assert max(stage.stream.sizes) <= PASS_BYTES


def test_a_restart_sends_no_line_again(stage: Stage):
    stage.write("one\n")
    stage.run_until(PERIOD * 2)
    stage.shipper = stage.new()
    stage.write("two\n")
    stage.run_until(PERIOD * 2)
    assert stage.stream.texts == ["one", "two"]


def test_a_kill_loses_no_line(stage: Stage):
    stage.write("one\n")
    stage.shipper.ship()
    stage.write("two\n")
    stage.shipper = stage.new()
    stage.shipper.ship()
    assert set(stage.stream.texts) == {"one", "two"}


def test_positions_that_can_not_be_written_stop_nothing(stage: Stage):
    (stage.folder / "positions.json").mkdir()
    stage.write("one\n")
    stage.shipper.ship()
    assert stage.stream.texts == ["one"]
    assert stage.events[-1]["event"] == "log_positions_not_saved"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_damaged_positions_are_none(tmp_path: Path, content: bytes):
    (tmp_path / "positions.json").write_bytes(content)
    assert read_positions(tmp_path / "positions.json") == {}


def test_empty_lines_do_not_stop_a_source(stage: Stage):
    stage.write("\n" * (2 * PASS_BYTES))
    stage.write("one\n")
    stage.run_until(20 * PERIOD)
    assert stage.stream.texts == ["one"]


def test_lines_of_a_file_that_vanished_unsent_are_not_taken_for_sent(stage: Stage):
    stage.stream.failures = [THROTTLED]
    stage.write("one\n")
    stage.shipper.ship()
    file = stage.folder / "slurmd.log"
    file.rename(stage.folder / "aside")
    stage.write("other\n", "node-boot")
    stage.clock.advance(LONGEST_PAUSE)
    stage.shipper.ship()
    (stage.folder / "aside").rename(file)
    stage.shipper.ship()
    assert stage.stream.texts == ["other", "one"]
