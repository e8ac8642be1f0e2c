"""The head's daemons, of which slurmdbd answers some time after each restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.system.command import CommandResult
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fakes.clock import FakeClock


class LateSlurmdbd(FakeRunner):
    """A runner on which sacctmgr fails for `late_seconds` after slurmdbd's restart."""

    def __init__(self, clock: FakeClock, late_seconds: float = 0.0) -> None:
        super().__init__()
        self.late_seconds = late_seconds
        self.asked_at: dict[tuple[str, ...], float] = {}
        """The last moment of each command."""
        self._clock = clock
        self._restarted = clock.monotonic()

    def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        result = super().run(argv, timeout=timeout, stdin=stdin)
        now = self._clock.monotonic()
        self.asked_at[tuple(argv)] = now
        if "restart" in argv and "slurmdbd.service" in argv:
            self._restarted = now
        if argv[0].endswith("sacctmgr") and now < self._restarted + self.late_seconds:
            return CommandResult(1, "", "sacctmgr: error: Problem talking to the database")
        return result
