"""What asks whether the tests would notice: it must itself not be fooled."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.mutants import by_hand
from tests.mutants.core import CORE
from tests.mutants.reviewed import REVIEWED

ROOT = Path(__file__).parents[3]


def ended(code: int, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess((), code, said)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said of the mutants, of which a copy without files is to be made."""
    lines: list[str] = []
    monkeypatch.setattr(by_hand, "say", lines.append)
    monkeypatch.setattr(by_hand, "copied", lambda: contextlib.nullcontext(tmp_path))
    return lines


@pytest.mark.parametrize(
    ("ran", "why"),
    [
        (
            ended(1, "FAILED tests/unit/engine/test_policy.py::test_x"),
            "test_policy.py::test_x` fails",
        ),
        (ended(4), "pytest ended with 4"),
        (ended(5), "pytest ended with 5"),
    ],
)
def test_no_mutant_is_tried_while_its_tests_fail_without_it(
    printed: list[str], monkeypatch: pytest.MonkeyPatch, ran, why
):
    """A test that is red anyway would notice every mutant."""
    monkeypatch.setattr(by_hand, "run", lambda _tree, _tests: ran)
    with pytest.raises(SystemExit, match=why):
        by_hand.main([])
    assert printed == []


def test_the_same_tests_are_run_once_without_a_mutant(
    printed: list[str], monkeypatch: pytest.MonkeyPatch
):
    runs = []
    monkeypatch.setattr(by_hand, "run", lambda _tree, tests: runs.append(tests) or ended(0))
    monkeypatch.setattr(by_hand, "tried", lambda _tree, _mutant: ("noticed", True))
    assert by_hand.main([]) == 0
    assert sorted(runs) == sorted({item.tests for item in REVIEWED})
    assert len(printed) == len(REVIEWED) + 1


def test_each_module_of_the_core_is_there_and_so_are_its_tests():
    for module, tests in CORE.items():
        assert (ROOT / module).is_file()
        assert all((ROOT / path).exists() for path in tests), module


@pytest.mark.parametrize("name", ["fates", "board", "brake", "quotas", "registering", "steady"])
def test_what_decides_over_launches_belongs_to_the_core(name: str):
    assert f"slurmplugins/{name}.py" in CORE


def test_the_core_is_listed_in_one_place():
    script = (ROOT / "scripts" / "coverage").read_text()
    assert "tests.mutants.core" in script
    assert "slurmplugins" not in script


def test_the_document_counts_the_mutants_that_were_made_by_hand():
    text = " ".join((ROOT / "docs" / "testing.md").read_text().split())
    equivalent = sum(bool(item.equivalent) for item in REVIEWED)
    assert f"{len(REVIEWED)} changes of one line" in text
    assert f"Of the {len(REVIEWED)}, {equivalent} are equivalent" in text
