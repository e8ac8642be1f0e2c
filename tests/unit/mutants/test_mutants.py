"""The judgement of mutants: only a failed test notices one."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import by_hand, by_tool
from tests.mutants.by_tool import Judged, Survivor
from tests.mutants.core import CORE, MUTATED
from tests.mutants.mended import MENDED
from tests.mutants.reviewed import REVIEWED, Mutant

ROOT = Path(__file__).parents[3]


WATCHED = """
import os, runpy, sys, threading
sys.argv = ["mutmut", "--help"]
try:
    runpy.run_path({path!r}, run_name="__main__")
finally:
    from mutmut.workers import isolation
    isolation.register_timeout(pid=os.getpid(), timeout_s=3600)
    print("threads:", threading.active_count())
"""


def completed(code: int, output: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess((), code, output)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The printed lines about the mutants.

    The copy of the repository that they would run in is empty.
    """
    lines: list[str] = []
    monkeypatch.setattr(by_hand, "say", lines.append)
    monkeypatch.setattr(by_hand, "copied", lambda: contextlib.nullcontext(tmp_path))
    return lines


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (
            completed(1, "FAILED tests/unit/slurmplugins/launch/test_fallback.py::test_x"),
            "test_fallback.py::test_x` fails",
        ),
        (completed(4), "pytest ended with 4"),
        (completed(5), "pytest ended with 5"),
    ],
)
def test_no_mutant_is_tried_if_its_tests_fail_without_it(
    printed: list[str], monkeypatch: pytest.MonkeyPatch, result, why
):
    """Refuse failing tests, because they would notice every mutant."""
    monkeypatch.setattr(by_hand, "run", lambda _tree, _tests: result)
    with pytest.raises(SystemExit, match=why):
        by_hand.main(REVIEWED, [])
    assert printed == []


@pytest.mark.parametrize("table", [REVIEWED, MENDED])
def test_each_test_selection_is_run_once_without_a_mutant(
    printed: list[str], monkeypatch: pytest.MonkeyPatch, table: tuple[Mutant, ...]
):
    runs = []
    monkeypatch.setattr(by_hand, "run", lambda _tree, tests: runs.append(tests) or completed(0))
    monkeypatch.setattr(by_hand, "tried", lambda _tree, _mutant: ("noticed", True))
    assert by_hand.main(table, []) == 0
    assert sorted(runs) == sorted({item.tests for item in table})
    assert len(printed) == len(table) + 1


def test_each_mended_fault_of_the_engine_has_a_mutant_that_brings_it_back():
    """Leave out fault 21 alone, which the review graded C."""
    numbers = {int(re.match(r"fault (\d+): ", item.what)[1]) for item in MENDED}
    assert numbers == {*range(1, 23)} - {21}


@pytest.mark.parametrize("mutant", [*REVIEWED, *MENDED], ids=lambda item: item.what)
def test_the_text_that_a_mutant_changes_is_in_its_file_once(mutant: Mutant):
    assert (ROOT / mutant.path).read_text().count(mutant.old) == 1


def test_each_module_of_the_core_exists_with_its_tests():
    for module, tests in CORE.items():
        assert (ROOT / module).is_file()
        assert all((ROOT / path).exists() for path in tests), module


@pytest.mark.parametrize(
    "name",
    [
        "launch/all_or_nothing",
        "launch/request_tracker",
        "state/launch_budget",
        "reconciler/node_state",
        "state/persistent_clock",
    ],
)
def test_modules_that_decide_on_launches_belong_to_the_core(name: str):
    assert f"slurmplugins/{name}.py" in CORE


def test_the_coverage_script_reads_the_list_of_the_core():
    script = (ROOT / "scripts" / "coverage").read_text()
    assert "tests.mutants.core" in script
    assert "slurmplugins/" not in script


def test_the_document_counts_the_reviewed_mutants():
    text = " ".join((ROOT / "docs" / "testing.md").read_text().split())
    equivalent = sum(bool(item.equivalent) for item in REVIEWED)
    assert f"has {len(REVIEWED)} mutants" in text
    assert f"Of the {len(REVIEWED)}, {equivalent} is equivalent" in text


@pytest.mark.parametrize(
    ("old", "new", "wording"),
    [
        ("end(it, 'it stopped')", "end(it, 'XXit stoppedXX')", True),
        ("end(it, 'it stopped')", "end(it, 'IT STOPPED')", True),
        ("end(it, 'it stopped')", "end(it, None)", False),
        ("end('spot', 'it stopped')", "end('SPOT', 'it stopped')", False),
        ("end('spot', 'stopped')", "end('spot', 'XXstoppedXX')", False),
        ("end(a + b, 'it stopped')", "end(a - b, 'it stopped')", False),
    ],
)
def test_only_a_change_of_letters_in_a_sentence_is_wording(old: str, new: str, wording: bool):
    """Take one word for a key, a state or a tag.

    Only a person reads a sentence.
    """
    assert Survivor("a.py", "f", old, new).wording is wording


@pytest.mark.parametrize(
    ("survives", "listed", "code"),
    [("x", "x", 0), ("x", "", 1), ("", "x", 1), ("", "", 0)],
)
def test_an_unlisted_survivor_and_a_listed_one_that_does_not_survive_both_fail(
    monkeypatch: pytest.MonkeyPatch, survives: str, listed: str, code: int
):
    def items(text: str) -> frozenset[Survivor]:
        return frozenset(Survivor(MUTATED[0], "f", item, "new") for item in text)

    monkeypatch.setattr(by_tool, "say", lambda _: None)
    monkeypatch.setattr(by_tool, "known", lambda: dict.fromkeys(items(listed), "equivalent"))
    monkeypatch.setattr(by_tool, "judge", lambda _: Judged(1, 0, 0, survivors=items(survives)))
    assert by_tool.main(MUTATED[:1]) == code


@pytest.mark.parametrize("code", [0, 5, 33, 35, -9, -11])
def test_a_mutant_is_noticed_only_by_a_failed_test(monkeypatch: pytest.MonkeyPatch, code: int):
    """Count a mutant as a survivor unless a test failed.

    These exit codes mean that no test ran, or that the tests ended without a result.
    """
    change = Survivor("a.py", "f", "old", "new")
    monkeypatch.setattr(by_tool, "shown", lambda *_: change)
    codes = {"passed": code, "failed": 1, "endless": -24, "mypy": 37}
    judgement = by_tool.judged(Path(), "a.py", codes)
    assert (judgement.mutants, judgement.by_tests, judgement.by_types) == (4, 2, 1)
    assert judgement.survivors == {change}


def test_no_process_is_watched_by_its_number(tmp_path: Path):
    """Send no signal to a number that another process may have."""
    (tmp_path / "code").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.mutmut]\nsource_paths = ["code"]\n')
    program = WATCHED.format(path=str(by_tool.RUN_MUTMUT[2]))
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "threads: 1" in ran.stdout


def test_each_listed_survivor_is_of_the_core_and_has_a_reason():
    for change, why in by_tool.known().items():
        assert change.module in CORE
        assert len(why) > 20, change


def test_modules_that_mutmut_judges_belong_to_the_core():
    assert set(MUTATED) <= CORE.keys()


def test_the_document_has_the_results_of_each_mutated_module():
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = {
        module: [int(number) for number in numbers.split("|")]
        for module, numbers in re.findall(r"^\| (\S+\.py) \| ([\d| ]+) \|$", text, re.MULTILINE)
    }
    assert rows.keys() == set(MUTATED)
    listed = Counter(change.module for change in by_tool.known())
    for module, (count, *parts) in rows.items():
        assert sum(parts) == count, module
        assert parts[-1] == listed[module], module
