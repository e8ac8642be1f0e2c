"""The pages name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"`(?:[\w/]*/)?(test_\w+)(?:\.py)?`")


def test_every_test_that_a_page_names_exists():
    files = list((ROOT / "tests").rglob("*.py"))
    known = {path.stem for path in files}
    for path in files:
        known.update(re.findall(r"^\s*def (test_\w+)", path.read_text(), re.MULTILINE))
    named = {
        (page.name, name)
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for name in NAME.findall(page.read_text())
    }
    assert len(named) > 100
    assert not {(page, name) for page, name in named if name not in known} - {
        ("join-check.md", "test_exec")  # a word of Slurm's LaunchParameters
    }
