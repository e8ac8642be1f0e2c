"""Logs and the decision log: bounded, with all that `toolkit why` reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurmplugins.head import collect
from slurmplugins.model import hostlist
from slurmplugins.system import decision_log, logger
from slurmplugins.system.log_events import DECISIONS, LogEvent
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_log_turns_over_at_its_limit_and_keeps_one_file_before_it(tmp_path: Path):
    path = tmp_path / "x.log"
    write = logger.to_file(path, limit=1000)
    for number in range(105):
        write(f"{number:03d}".ljust(99, ".") + "\n")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["x.log", "x.log.1"]
    assert all(item.stat().st_size <= 1000 for item in tmp_path.iterdir())
    assert (tmp_path / "x.log.1").read_text().splitlines()[-1].startswith("099")


def test_a_log_that_can_not_be_written_stops_nothing(tmp_path: Path, capsys):
    logger.to_file(tmp_path / "absent" / "x.log")("a line\n")
    assert capsys.readouterr().err == "a line\n"


def test_the_decision_log_has_the_decisions_and_nothing_else(tmp_path: Path):
    lines: list[str] = []
    path = tmp_path / "decisions.jsonl"
    found = Log(decision_log.copying_writer(path, lines.append), FakeClock())
    found.info(LogEvent.PROGRAM_STARTED, nodes="gpu-001")
    found.warning(LogEvent.LAUNCH_FAILED, job=7, code="InsufficientInstanceCapacity")
    assert len(lines) == 2
    (kept,) = map(json.loads, path.read_text().splitlines())
    assert (kept["event"], kept["job"]) == ("launch_failed", 7)


def logged_events() -> Iterator[str]:
    """Yield every event that a program of the engine may log."""
    for path in Path(decision_log.__file__).parents[1].rglob("*.py"):
        if path.name != "log_events.py":
            yield from re.findall(r"LogEvent\.(\w+)", path.read_text())


def test_every_event_is_logged_by_some_program():
    assert set(LogEvent.__members__) == set(logged_events())


def test_an_event_is_a_slug():
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", event) for event in LogEvent)


def test_what_reconcile_does_not_do_is_a_decision():
    undone = {
        LogEvent.ACTIONS_BLOCKED, LogEvent.ACTIONS_POSTPONED, LogEvent.TERMINATIONS_BLOCKED,
        LogEvent.LAUNCH_NOT_RESOLVED, LogEvent.ACTION_FAILED, LogEvent.TERMINATION_LEFT,
        LogEvent.JOB_NOT_REQUEUED, LogEvent.PASS_STATE_NOT_SAVED,
    }  # fmt: skip
    assert undone <= DECISIONS


def test_decisions_are_found_across_the_turn_of_the_file_oldest_first(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    path.with_name("decisions.jsonl.1").write_text('{"node": "a", "n": 1}\nhalf {')
    path.write_text('{"node": "b"}\n[]\n{"node": "a", "n": 2}\n')
    found = decision_log.recent_decisions(path, lambda item: item["node"] == "a")
    assert [item["n"] for item in found] == [1, 2]
    assert decision_log.recent_decisions(tmp_path / "absent", lambda _: True) == ()


SCATTERED = hostlist.expand("gpu-[" + ",".join(str(number) for number in range(1, 8000, 2)) + "]")
JOBS = list(range(100_000, 103_000))


def logged(**fields: object) -> list[str]:
    lines: list[str] = []
    Log(lines.append, FakeClock()).info(LogEvent.INSTANCES_LAUNCHED, **fields)
    return lines


@pytest.mark.parametrize(
    "nodes", [SCATTERED, hostlist.compress(SCATTERED)], ids=["list", "hostlist"]
)
def test_a_long_line_becomes_several_and_none_of_its_nodes_and_jobs_is_lost(nodes: object):
    lines = logged(nodes=nodes, jobs=JOBS, attempt="a1", message="x" * 9000)
    assert all(len(line) <= logger.MAX_LINE_BYTES + 1 for line in lines)
    records = [json.loads(line) for line in lines]
    assert [item["part"] for item in records] == list(range(1, len(records) + 1))
    assert {item["attempt"] for item in records} == {"a1"}
    assert list(dict.fromkeys(job for item in records for job in item["jobs"])) == JOBS
    for node in (SCATTERED[0], SCATTERED[1999], SCATTERED[-1]):
        assert any(collect.concerns(item, collect.Subject(node=node)) for item in records)


def test_what_is_short_stands_on_every_line_of_an_event():
    records = [json.loads(line) for line in logged(nodes="gpu-[1-3000]", jobs=JOBS)]
    assert len(records) > 1
    assert all(item["nodes"] == "gpu-[1-3000]" for item in records)


def test_a_short_event_is_one_line_and_says_nothing_of_parts():
    (line,) = logged(nodes="gpu-[1-3]", jobs=[7])
    assert "part" not in json.loads(line)


@pytest.mark.parametrize("message", ["x" * 100_000, "gpu-[" * 2000, "gpu-1," * 20_000])
def test_free_text_is_cut_whatever_it_looks_like(message: str):
    assert sum(map(len, logged(message=message))) < 3 * logger.MAX_LINE_BYTES


def test_a_decision_of_several_lines_is_told_once(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    lines = logged(nodes="gpu-[1-3000]", jobs=JOBS, attempt="a1")
    again = logged(nodes="gpu-[1-3000]", jobs=[7], attempt="a2")
    path.write_text("".join(lines + again + lines))
    found = decision_log.recent_decisions(
        path, lambda item: collect.concerns(item, collect.Subject(node="gpu-9"))
    )
    assert [item["attempt"] for item in found] == ["a1", "a2", "a1"]
    (last,) = decision_log.recent_decisions(
        path, lambda item: collect.concerns(item, collect.Subject(job=JOBS[-1]))
    )[:1]
    assert last["part"] == len(lines)


def test_a_line_is_one_json_object_bounded_and_without_secrets():
    lines: list[str] = []
    log = Log(lines.append, FakeClock()).bind(run="r")
    log.info(LogEvent.PROGRAM_STARTED, slurm_key="hush", nodes=["a\nb"], text="x" * 100_000)
    record = json.loads(lines[0])
    assert (record["run"], record["slurm_key"], record["event"]) == (
        "r",
        "[redacted]",
        "program_started",
    )
    assert lines[0].count("\n") == 1
    assert len(lines[0]) < 8100
