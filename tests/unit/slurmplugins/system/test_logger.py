"""Logs and the decision log stay bounded, and hold what `toolkit why` tells."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurmplugins.head import collect
from slurmplugins.model import hostlist
from slurmplugins.system import decision_log, logger
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
    found.info("called", nodes="gpu-001")
    found.warning("launch failed", job=7, code="InsufficientInstanceCapacity")
    assert len(lines) == 2
    (kept,) = map(json.loads, path.read_text().splitlines())
    assert (kept["event"], kept["job"]) == ("launch failed", 7)


LEVELS = {"info", "warning", "problem"}


def said() -> Iterator[str]:
    """Every event that a program of the engine may log."""
    for path in Path(decision_log.__file__).parents[1].rglob("*.py"):
        nodes = tuple(ast.walk(ast.parse(path.read_text())))
        for named in (node for node in nodes if isinstance(node, ast.Attribute)):
            if isinstance(named.value, ast.Name) and named.value.id == "decision_log":
                yield str(getattr(decision_log, named.attr))
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            parts = ast.walk(call.args[0]) if name in LEVELS and call.args else ()
            yield from (str(part.value) for part in parts if isinstance(part, ast.Constant))


def test_every_event_that_is_a_decision_is_logged_by_some_program():
    assert decision_log.EVENTS - set(said()) == frozenset()


def test_what_reconcile_does_not_do_is_a_decision():
    undone = {
        "held back", "left to the next pass", "nothing is ended", "still in doubt",
        "action failed", "machines left to reconcile", "not brought back", "not remembered",
    }  # fmt: skip
    assert undone <= decision_log.EVENTS


def test_decisions_are_found_across_the_turn_of_the_file_oldest_first(tmp_path: Path):
    path = tmp_path / "decisions.jsonl"
    path.with_name("decisions.jsonl.1").write_text('{"event": "node", "node": "a", "n": 1}\nhalf {')
    path.write_text('{"event": "node", "node": "b"}\n[]\n{"event": "node", "node": "a", "n": 2}\n')
    found = decision_log.recent_decisions(path, lambda item: item["node"] == "a")
    assert [item["n"] for item in found] == [1, 2]
    assert decision_log.recent_decisions(tmp_path / "absent", lambda _: True) == ()


SCATTERED = hostlist.expand("gpu-[" + ",".join(str(number) for number in range(1, 8000, 2)) + "]")
JOBS = list(range(100_000, 103_000))


def logged(**fields: object) -> list[str]:
    lines: list[str] = []
    Log(lines.append, FakeClock()).info("launched", **fields)
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
    log.info("called", slurm_key="hush", nodes=["a\nb"], text="x" * 100_000)
    record = json.loads(lines[0])
    assert (record["run"], record["slurm_key"], record["event"]) == ("r", "[redacted]", "called")
    assert lines[0].count("\n") == 1
    assert len(lines[0]) < 8100
