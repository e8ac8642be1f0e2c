"""docs/testing.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CELL = re.compile(r"`(test_\w+)`: ([^|`]+)")


def test_every_test_that_the_table_of_mutants_names_exists():
    text = (ROOT / "docs" / "testing.md").read_text()
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    named_tests = [
        (file, word.split()[0])
        for row in rows
        for file, words in CELL.findall(row)
        for word in re.split("[,;]", words)
        if word.strip() and not word.strip().startswith("the ")
    ]
    assert len(named_tests) > 20
    for file, word in named_tests:
        (path,) = (ROOT / "tests").rglob(f"{file}.py")
        assert re.search(rf"def test_\w*{word}", path.read_text()), (file, word)
