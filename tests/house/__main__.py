"""Print the figures of the code.

python -m tests.house
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.house import docstrings, imports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("slurmplugins", "toolkit")
WORDS = (*PACKAGES, "jobscripts", "tests")
"""Folders whose docstrings are judged."""
PATH = ("slurmplugins.resume", "slurmplugins.node_boot")
"""The programs that run between sbatch and a registered node."""


def rooms() -> Iterator[str]:
    yield f"{'room':<40} files lines"
    for package in PACKAGES:
        folders = {path.parent for path in (ROOT / package).rglob("*.py")}
        for folder in sorted(folders):
            files = sorted(folder.glob("*.py"))
            lines = sum(len(path.read_text().splitlines()) for path in files)
            yield f"{folder.relative_to(ROOT)!s:<40} {len(files):>5} {lines:>5}"


def words() -> Iterator[str]:
    for folder in WORDS:
        found = [
            one
            for path in sorted((ROOT / folder).rglob("*.py"))
            for one in docstrings.docstrings(path, path.read_text())
        ]
        yield (
            f"{folder}: {len(found)} docstrings;"
            f" {sum(one.opens_badly for one in found)} open with a question word or a pronoun,"
            f" {sum(one.opens_long for one in found)} have a first line over"
            f" {docstrings.FIRST_LINE} words,"
            f" {sum(one.long_sentences for one in found)} sentences have over"
            f" {docstrings.SENTENCE} words"
        )


def graph() -> Iterator[str]:
    read = imports.graph_of(*PACKAGES)
    yield f"import circles: {len(imports.circles(imports.imports_of(read)))}"
    needed: set[str] = set()
    for program in PATH:
        own = imports.needed_by(read, program)
        needed |= own
        yield f"modules that {program} needs: {len(own)}"
    yield f"modules from sbatch to a registered node: {len(needed)}"


if __name__ == "__main__":
    for line in (*rooms(), "", *words(), "", *graph()):
        print(line)  # noqa: T201 - printing is this program's purpose
