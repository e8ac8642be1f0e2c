"""Splits shell text into commands as a reader would, not as bash executes it.

It understands quotes, continued lines, arrays, `$(...)` over several lines, comments
and here-documents as far as finding the commands needs it. Nothing is ever executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HEREDOC: Final = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_ASSIGNMENT: Final = re.compile(
    r"^\s*(?:(?:export|readonly|local|declare|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)\+?=(.*)$",
    re.DOTALL,
)
_VARIABLE: Final = re.compile(
    r"\"?\$\{(\w+)(?:\[[@*]\])?(?::?[-=+][^{}]*)?\}\"?|\$(\w+)|\$\{(\w+):?[-=]([^{}]*)\}"
)
_SUBSTITUTION: Final = re.compile(r"\$\((?!\()[^()]*\)|`[^`]*`")
_DEPTH: Final = 4
_LONGEST: Final = 20_000


@dataclass(frozen=True, slots=True)
class Command:
    """A logical line."""

    line: int
    text: str
    inner: bool = False  # in a here-document, for another program, if it is run at all


class _Reader:
    """A reader of characters. A command ends at a newline outside quotes and parentheses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._quote = ""
        self._depth = 0
        self.documents: set[int] = set()

    def commands(self) -> Iterator[Command]:
        held: list[str] = []
        began = 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\n" and not (self._quote or self._depth):
                text = "".join(held).strip()
                self._step()
                if text:
                    yield Command(began, text)
                    yield from self._heredocs(text)
                held, began = [], self._line
            elif char == "#" and self._starts_comment(held):
                self._skip_comment()
            else:
                if not "".join(held).strip():
                    began = self._line
                held.append(self._take(char))
        if text := "".join(held).strip():
            yield Command(began, text)

    def _step(self) -> None:
        self._line += self._text[self._at] == "\n"
        self._at += 1

    def _take(self, char: str) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if char == "\\" and self._quote != "'":
            self._step()
            if following:
                self._step()
            return " " if following == "\n" else char + following
        if self._quote:
            self._quote = "" if char == self._quote else self._quote
        elif char in "\"'`":
            self._quote = char
        elif char == "(":
            before = self._text[self._at - 1 : self._at]
            self._depth += bool(self._depth) or before in ("$", "=", "(")
        elif char == ")" and self._depth:
            self._depth -= 1
        self._step()
        return " " if char == "\n" and self._depth else char

    def _starts_comment(self, held: list[str]) -> bool:
        return not self._quote and (not held or held[-1][-1:].isspace() or held[-1] in ";(")

    def _skip_comment(self) -> None:
        while self._at < len(self._text) and self._text[self._at] != "\n":
            self._at += 1

    def _heredocs(self, text: str) -> Iterator[Command]:
        for found in _HEREDOC.finditer(text):
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                body, line = self._text[self._at : end], self._line
                self._at, self._line = end + 1, line + 1
                self.documents.add(line)
                if body.strip() == found[2]:
                    break
                if body.strip() and not body.lstrip().startswith("#"):
                    yield Command(line, body.strip(), inner=True)


def commands(text: str) -> tuple[tuple[Command, ...], frozenset[int]]:
    """Return the commands in order, and the lines of here-documents.

    Comments are left out.
    """
    reader = _Reader(text)
    return tuple(reader.commands()), frozenset(reader.documents)


def assignments(found: Iterable[Command]) -> dict[str, str]:
    """Return each variable's value, or all its values joined."""
    values: dict[str, list[str]] = {}
    for command in found:
        if match := _ASSIGNMENT.match(command.text):
            values.setdefault(match[1], []).append(_bare(match[2]))
    return {name: " ".join(parts) for name, parts in values.items()}


def is_assignment(text: str) -> bool:
    """Return whether the command only sets a variable.

    `A=b cmd` does not: it runs cmd.
    """
    match = _ASSIGNMENT.match(text)
    if not match:
        return False
    value = match[2].strip()
    if value[:1] in "\"'(" or value.startswith("$("):
        return True
    return len(value.split()) <= 1 or text.lstrip().startswith(("export", "declare", "readonly"))


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the script's own variables replaced."""

    def put_in(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        if name not in values:
            return match[0]
        return f" {values[name]} " if match[0].startswith('"') else values[name]

    for _ in range(_DEPTH):
        after = _VARIABLE.sub(put_in, text)
        if after == text or len(after) > _LONGEST:
            break
        text = after
    return text


def without_substitutions(text: str) -> str:
    """Return the text without `$(...)` and `` `...` ``, other commands."""
    for _ in range(_DEPTH):
        after = _SUBSTITUTION.sub("", text)
        if after == text:
            break
        text = after
    return text


def _bare(value: str) -> str:
    value = value.strip()
    if value[:1] == "(" and value[-1:] == ")":
        return value[1:-1]
    if value[:1] in "\"'" and value[-1:] == value[:1]:
        return value[1:-1]
    return value
