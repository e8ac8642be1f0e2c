"""The output of commands."""

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from toolkit.output import PlainReporter, print_json, table


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_phase_prints_one_line_with_its_result_and_time():
    """Print nothing at a phase's start and one line at its end.

    So logs stay short.
    """
    stream, clock = io.StringIO(), Clock()
    with PlainReporter(stream, clock).phase("Creating stack") as phase:
        phase.update("vpc", done=1, total=9)
        clock.now = 12
        phase.result("9 resources")
    assert stream.getvalue() == "ok   Creating stack: 9 resources (12 s)\n"


def test_a_failed_phase_prints_fail_and_passes_the_error_on():
    """Print the line before the error's own text."""
    stream = io.StringIO()
    with pytest.raises(ValueError, match="x"), PlainReporter(stream, Clock()).phase("Building"):
        raise ValueError("x")
    assert stream.getvalue() == "FAIL Building (0 s)\n"


def test_a_long_phase_prints_its_progress():
    """Print progress, because a log without new lines for minutes looks hung."""
    stream, clock = io.StringIO(), Clock()
    with PlainReporter(stream, clock).phase("Building") as phase:
        phase.update("task 1")
        clock.now = 31
        phase.update("task 2", done=2, total=9)
        phase.update("task 3", done=3, total=9)
    assert stream.getvalue().splitlines()[0] == "     Building: [2/9] task 2"
    assert len(stream.getvalue().splitlines()) == 2


def test_print_json_encodes_dataclasses_times_and_decimals(capsys):
    """Encode a decimal as text, because a float would change money."""

    @dataclass
    class Row:
        at: datetime
        usd: Decimal

    print_json([Row(datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.10"))])
    rows = json.loads(capsys.readouterr().out)
    assert rows == [{"at": "2026-01-01T00:00:00+00:00", "usd": "0.10"}]


def test_a_table_escapes_control_characters():
    """Keep escape codes in a job's name from the terminal."""
    text = table(("A", "B"), [("x\x1b[31m", 1), ("longer", 22)])
    assert "\x1b" not in text
    assert text.splitlines()[2] == "longer  22"
