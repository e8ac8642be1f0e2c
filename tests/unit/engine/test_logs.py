"""Logs and the decision log stay bounded, and hold what `toolkit why` tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from slurmplugins import decisions, log
from slurmplugins.log import Log
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_turns_over_at_its_limit_and_keeps_one_file_before_it(tmp_path: Path):
    path = tmp_path / "x.log"
    write = log.to_file(path, limit=1000)
    for number in range(105):
        write(f"{number:03d}".ljust(99, ".") + "\n")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["x.log", "x.log.1"]
    assert all(item.stat().st_size <= 1000 for item in tmp_path.iterdir())
    assert (tmp_path / "x.log.1").read_text().splitlines()[-1].startswith("099")


def test_a_log_that_can_not_be_written_stops_nothing(tmp_path: Path, capsys):
    log.to_file(tmp_path / "absent" / "x.log")("a line\n")
    assert capsys.readouterr().err == "a line\n"


def test_the_decision_log_has_the_decisions_and_nothing_else(tmp_path: Path):
    lines: list[str] = []
    path = tmp_path / "decisions.jsonl"
    found = Log(decisions.recorder(path, lines.append), FakeClock())
    found.info("called", nodes="gpu-001")
    found.warning("launch failed", job=7, code="InsufficientInstanceCapacity")
    assert len(lines) == 2
    (kept,) = map(json.loads, path.read_text().splitlines())
    assert (kept["event"], kept["job"]) == ("launch failed", 7)


def test_decisions_are_found_across_the_turn_of_the_file_oldest_first(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    path.with_name("decisions.jsonl.1").write_text('{"event": "node", "node": "a", "n": 1}\nhalf {')
    path.write_text('{"event": "node", "node": "b"}\n[]\n{"event": "node", "node": "a", "n": 2}\n')
    found = decisions.about(path, lambda item: item["node"] == "a")
    assert [item["n"] for item in found] == [1, 2]
    assert decisions.about(tmp_path / "absent", lambda _: True) == ()
