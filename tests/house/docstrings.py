"""Finds docstrings that break the rules of docs/glossary.md. Pure.

A docstring opens with a verb or a noun. A function's first line has at most twelve words, and a
sentence at most twenty-five.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST_LINE = 12
SENTENCE = 25
QUESTIONS = frozenset(
    """what whether which where who whose whoever whatever when why how
    that this it its they them those these one ones none nothing nobody
    of as in on at to for from by with without than so if until while there""".split()  # noqa: SIM905 - a list of them takes forty lines
)
"""Question words, pronouns and prepositions: each makes the reader guess the subject."""

ROW = re.compile(r"^\s|^[|├└*]|\S {2,}\S")
"""A line of a table, a tree or an example. It has columns or is indented, so it is no sentence."""

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring.

    `name` is its function's, its class's, or "module".
    """

    path: Path
    line: int
    name: str
    text: str
    of_function: bool

    @property
    def first_line(self) -> str:
        return self.text.strip().splitlines()[0]

    @property
    def opens_badly(self) -> bool:
        words = re.findall(r"[\w'-]+", self.first_line)
        return bool(words) and words[0].lower() in QUESTIONS

    @property
    def opens_long(self) -> bool:
        return self.of_function and len(self.first_line.split()) > FIRST_LINE

    @property
    def long_sentences(self) -> int:
        prose = "\n".join("" if ROW.search(line) else line for line in self.text.splitlines())
        return sum(len(one.split()) > SENTENCE for one in re.split(r"(?<=[.!?])\s|\n\n", prose))


def docstrings(path: Path, text: str) -> Iterator[Docstring]:
    """Yield a module's docstrings, its own first."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, *Function)) and (
            found := ast.get_docstring(node)
        ):
            name, line = getattr(node, "name", "module"), getattr(node, "lineno", 1)
            yield Docstring(path, line, name, found, isinstance(node, Function))
