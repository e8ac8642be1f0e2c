"""A stand-in for other programs.

It answers by the first words of the command, and records all commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.system.command import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeRunner:
    """A runner on which unknown commands succeed silently, unless `strict`."""

    def __init__(self, *, strict: bool = False) -> None:
        self.calls: list[tuple[list[str], str]] = []
        self._answers: list[tuple[tuple[str, ...], CommandResult]] = []
        self._strict = strict

    def answer(self, *words: str, stdout: str = "", stderr: str = "", returncode: int = 0) -> None:
        """Set the answer to commands that start with these words.

        The latest answer wins.
        """
        self._answers.insert(0, (words, CommandResult(returncode, stdout, stderr)))

    def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        assert timeout > 0
        assert all(isinstance(word, str) for word in argv)
        self.calls.append((list(argv), stdin))
        for words, completed in self._answers:
            if tuple(argv[: len(words)]) == words:
                return completed
        assert not self._strict, f"unexpected command: {argv}"
        return CommandResult(0, "", "")

    @property
    def commands(self) -> list[list[str]]:
        return [argv for argv, _ in self.calls]
