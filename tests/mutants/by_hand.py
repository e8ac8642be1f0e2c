"""Mutants made by hand, each with the tests that must fail on it."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from tests.mutants.tree import ROOT, copied, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.mutants.reviewed import Mutant

PYTEST = (ROOT / ".venv" / "bin" / "python", "-m", "pytest", "-q", "-x", "--tb=no", "-rfE")
# A mutant may keep a test from ending; the timeout makes that a failure.
QUIET = ("-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=120")

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def main(mutants: Sequence[Mutant], paths: Sequence[str]) -> int:
    """Print a table of mutants: those of some files, or all.

    Returns 1 if a mutant survives or is out of date.
    """
    chosen = [item for item in mutants if not paths or item.path in paths]
    wrong = 0
    with copied() as tree:
        for tests in dict.fromkeys(item.tests for item in chosen):
            if red := red_before(tree, tests):
                raise SystemExit(f"nothing is tried: without a mutant, {red}")
        for mutant in chosen:
            said, fine = tried(tree, mutant)
            wrong += not fine
            say(f"| {mutant.path} | {mutant.what} | {said} |")
    say(f"{len(chosen)} mutants, {wrong} that are not noticed and should be")
    return 1 if wrong else 0


def red_before(tree: Path, tests: Sequence[str]) -> str:
    """Return a failure of the tests on the unchanged copy, or "".

    A test that fails without a mutant would fail on any mutant.
    """
    ran = run(tree, tests)
    if not ran.returncode:
        return ""
    test = FAILED.search(ran.stdout)
    return f"`{test.group(1)}` fails" if test else f"pytest ended with {ran.returncode}: {tests}"


def run(tree: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests until the first fails."""
    return subprocess.run(
        [*PYTEST, *QUIET, *tests],
        cwd=tree,
        env={**os.environ, "TMPDIR": str(tree.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def tried(tree: Path, mutant: Mutant) -> tuple[str, bool]:
    """Return the result of one mutant, and whether it is as expected."""
    path = tree / mutant.path
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return f"OUT OF DATE: the text is there {text.count(mutant.old)} times", False
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        ran = run(tree, mutant.tests)
    finally:
        path.write_text(text)
    test = FAILED.search(ran.stdout)
    if ran.returncode == 1 and test:
        return f"noticed by `{test.group(1).removeprefix('tests/')}`", True
    if ran.returncode:
        return f"NOT RUN: pytest ended with {ran.returncode}", False
    if mutant.equivalent:
        return f"survives: {mutant.equivalent}", True
    return "SURVIVES", False
