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
_MAX_DEPTH: Final = 4
_MAX_LENGTH: Final = 20_000


@dataclass(frozen=True, slots=True)
class Command:
    """A logical line."""

    line: int
    text: str
    inner: bool = False  # in a here-document, for another program, if it is run at all


class _CommandReader:
    """A reader of characters. A command ends at a newline outside quotes and parentheses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line = 1
        self._quote = ""
        self._depth = 0
        self.heredoc_lines: set[int] = set()

    def commands(self) -> Iterator[Command]:
        characters: list[str] = []
        first_line = 1
        while self._position < len(self._text):
            char = self._text[self._position]
            if char == "\n" and not (self._quote or self._depth):
                text = "".join(characters).strip()
                self._advance()
                if text:
                    yield Command(first_line, text)
                    yield from self._heredocs(text)
                characters, first_line = [], self._line
            elif char == "#" and self._starts_comment(characters):
                self._skip_comment()
            else:
                if not "".join(characters).strip():
                    first_line = self._line
                characters.append(self._read_char(char))
        if text := "".join(characters).strip():
            yield Command(first_line, text)

    def _advance(self) -> None:
        self._line += self._text[self._position] == "\n"
        self._position += 1

    def _read_char(self, char: str) -> str:
        next_char = self._text[self._position + 1 : self._position + 2]
        if char == "\\" and self._quote != "'":
            self._advance()
            if next_char:
                self._advance()
            return " " if next_char == "\n" else char + next_char
        if self._quote:
            self._quote = "" if char == self._quote else self._quote
        elif char in "\"'`":
            self._quote = char
        elif char == "(":
            previous_char = self._text[self._position - 1 : self._position]
            self._depth += bool(self._depth) or previous_char in ("$", "=", "(")
        elif char == ")" and self._depth:
            self._depth -= 1
        self._advance()
        return " " if char == "\n" and self._depth else char

    def _starts_comment(self, characters: list[str]) -> bool:
        return not self._quote and (
            not characters or characters[-1][-1:].isspace() or characters[-1] in ";("
        )

    def _skip_comment(self) -> None:
        while self._position < len(self._text) and self._text[self._position] != "\n":
            self._position += 1

    def _heredocs(self, text: str) -> Iterator[Command]:
        for match in _HEREDOC.finditer(text):
            while self._position < len(self._text):
                end = self._text.find("\n", self._position)
                end = len(self._text) if end < 0 else end
                body, line = self._text[self._position : end], self._line
                self._position, self._line = end + 1, line + 1
                self.heredoc_lines.add(line)
                if body.strip() == match[2]:
                    break
                if body.strip() and not body.lstrip().startswith("#"):
                    yield Command(line, body.strip(), inner=True)


def split_commands(text: str) -> tuple[tuple[Command, ...], frozenset[int]]:
    """Return the commands in order, and the lines of here-documents.

    Comments are left out.
    """
    reader = _CommandReader(text)
    return tuple(reader.commands()), frozenset(reader.heredoc_lines)


def assigned_values(command_list: Iterable[Command]) -> dict[str, str]:
    """Return each variable's value, or all its values joined."""
    values: dict[str, list[str]] = {}
    for command in command_list:
        if match := _ASSIGNMENT.match(command.text):
            values.setdefault(match[1], []).append(_unquoted(match[2]))
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


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with the script's own variables replaced."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        if name not in values:
            return match[0]
        return f" {values[name]} " if match[0].startswith('"') else values[name]

    for _ in range(_MAX_DEPTH):
        result = _VARIABLE.sub(value_of, text)
        if result == text or len(result) > _MAX_LENGTH:
            break
        text = result
    return text


def without_substitutions(text: str) -> str:
    """Return the text without `$(...)` and `` `...` ``, other commands."""
    for _ in range(_MAX_DEPTH):
        result = _SUBSTITUTION.sub("", text)
        if result == text:
            break
        text = result
    return text


def _unquoted(value: str) -> str:
    value = value.strip()
    if value[:1] == "(" and value[-1:] == ")":
        return value[1:-1]
    if value[:1] in "\"'" and value[-1:] == value[:1]:
        return value[1:-1]
    return value
