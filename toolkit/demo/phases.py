"""Phases of the demonstration, shown one line each while they run."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from rich.markup import escape
from rich.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


class PhaseFailed(Exception):  # noqa: N818 - the name says what is wrong
    """A phase could not do its work.

    `remedy` is advice for a person. `evidence` is the end of the output that shows the failure.
    """

    def __init__(self, message: str, *, remedy: str, evidence: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.evidence = evidence


class ShowDetail(Protocol):
    """A function that shows the running phase's activity; the last text becomes its result line."""

    def __call__(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """The duration of one phase."""

    name: str
    seconds: float


@dataclass(slots=True)
class PhaseDisplay:
    """The display of phases: a spinner line on a terminal, plain lines in a log."""

    console: Console
    clock: Callable[[], float] = time.monotonic
    timings: list[Timing] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[ShowDetail]:
        """Run the block as one phase.

        Prints one line when it ends: a tick, the name, the last detail and the seconds.
        Exceptions of the block pass through, after a line that marks the phase failed.
        """
        started_at = self.clock()
        detail = ""
        is_terminal = self.console.is_terminal
        spinner = Status(f"{name} …", console=self.console)
        if is_terminal:
            spinner.start()
        else:
            self.console.print(f"  … {escape(name)}", highlight=False)

        def show_detail(text: str) -> None:
            nonlocal detail
            detail = text
            spinner.update(f"{escape(name)}  [dim]{escape(text)}[/dim]")

        mark = "[red]✗[/red]"
        try:
            yield show_detail
            mark = "[green]✓[/green]"
        finally:
            spinner.stop()
            seconds = self.clock() - started_at
            self.timings.append(Timing(name, seconds))
            self.console.print(
                f"  {mark} {escape(name):<28} {escape(detail)} [dim]{seconds:.0f} s[/dim]",
                highlight=False,
                soft_wrap=True,
            )
