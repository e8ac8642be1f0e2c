"""The common end of every program."""

from __future__ import annotations

import json

from slurmplugins.system.logger import Log
from slurmplugins.system.program import run_to_exit_code
from tests.fakes.clock import FakeClock

SECRET = "wJalrXUtnFEMI/K7MDENG"


def test_an_error_that_quotes_a_secret_shows_it_nowhere(capsys):
    lines: list[str] = []

    def work() -> None:
        cause = ValueError(f"no header: X-Amz-Security-Token: {SECRET}")
        raise OSError(f"the command failed: login --password={SECRET}") from cause

    assert run_to_exit_code(Log(lines.append, FakeClock()), work) == 1
    record = json.loads("".join(lines))
    assert record["error"] == "OSError: the command failed: login --password=[redacted]"
    assert "X-Amz-Security-Token: [redacted]" in record["trace"]
    assert "test_program.py" in record["trace"]
    assert SECRET not in "".join(lines)
    assert capsys.readouterr().err == f"{record['error']}\n"


def test_an_error_without_a_secret_is_told_whole(capsys):
    def work() -> None:
        raise KeyError("gpu-001")

    assert run_to_exit_code(Log(lambda _line: None, FakeClock()), work) == 1
    assert capsys.readouterr().err == "KeyError: 'gpu-001'\n"
