"""The use of an instance at any second: which lines its price goes to."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.instances import NEVER_UP, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.attempt_instances import Usage, Wait
    from toolkit.accounting.instances import Instance

WHOLE = Fraction(1)

Line = tuple[Component, int | None]
"""A component and the attempt (DBIndex) that caused it."""


class Timeline:
    """The use of an instance. Seconds must be asked in rising order.

    A second belongs to the attempts that run on the instance. If there is none, it
    belongs to the attempt that waits for it, else to the one that had it before. What
    no attempt has had or waited for is nobody's.
    """

    def __init__(
        self, instance: Instance, usages: Sequence[Usage], waits: Sequence[Wait], until: int
    ) -> None:
        self._instance = instance
        self._until = until  # the end of the window
        self._usages = sorted(usages, key=lambda usage: (usage.start, usage.attempt))
        self._waits = sorted(waits, key=lambda wait: (wait.start, wait.attempt))
        self._next_usage = self._next_wait = 0
        self._active: list[Usage] = []
        self._waiting: list[Wait] = []
        self._latest: Usage | Wait | None = None

    def cuts(self, end: int) -> set[int]:
        """Return the seconds at which the use changes."""
        marks = {end}
        items: list[Usage | Wait] = [*self._usages, *self._waits]
        for item in items:
            marks |= {item.start, item.end}
        return marks | {usage.lost_from for usage in self._usages if usage.lost_from is not None}

    def shares(self, at: int, end: int) -> list[tuple[Line, Fraction]]:
        """Return the lines charged from `at` on; their parts sum to 1."""
        self._advance(min(at, end))  # a minimum may reach into the next start
        if at >= end:
            return [((Component.MINIMUM, self._latest.attempt if self._latest else None), WHOLE)]
        if not self._active:
            return [(self._unused_line(), WHOLE)]
        if len(self._active) == 1 and self._active[0].share == 1:
            return [((_component(self._active[0], at), self._active[0].attempt), WHOLE)]
        total = sum((usage.share for usage in self._active), Fraction(0))
        scale = max(total, WHOLE)
        shares: list[tuple[Line, Fraction]] = [
            ((_component(usage, at), usage.attempt), usage.share / scale) for usage in self._active
        ]
        if total < 1:
            shares.append(((self._unused_part, None), 1 - total))
        return shares

    def _advance(self, at: int) -> None:
        while self._next_usage < len(self._usages) and self._usages[self._next_usage].start <= at:
            usage = self._usages[self._next_usage]
            self._active.append(usage)
            self._remember(usage)
            self._next_usage += 1
        while self._next_wait < len(self._waits) and self._waits[self._next_wait].start <= at:
            wait = self._waits[self._next_wait]
            self._waiting.append(wait)
            self._remember(wait)
            self._next_wait += 1
        self._active = [usage for usage in self._active if usage.end > at]
        self._waiting = [wait for wait in self._waiting if wait.end > at]

    def _remember(self, item: Usage | Wait) -> None:
        """Keep the item that ended last.

        Of equal ends the one that began last counts. Items from before a window are seen at once,
        so their own times decide, not the window.
        """
        latest = self._latest
        if latest is None or (item.end, item.start) >= (latest.end, latest.start):
            self._latest = item

    @property
    def _unused_part(self) -> Component:
        is_rack = self._instance.kind is Kind.RACK
        return Component.RACK_IDLE if is_rack else Component.UNALLOCATED

    def _unused_line(self) -> Line:
        instance = self._instance
        component = _of_no_job(instance)
        if component is not None:
            return component, None
        # The wait that ends first is the one of the job that had the node first.
        wait = min(self._waiting, key=lambda item: (item.end, item.attempt), default=None)
        cause = wait or self._latest
        if instance.end_cause in NEVER_UP and not self._usages:
            return Component.FAILED_LAUNCH, cause.attempt if cause else None
        if wait is not None:
            return (Component.WAIT if self._next_usage else Component.BOOT), wait.attempt
        if cause is None or instance.static:
            return Component.IDLE, None
        return (Component.IDLE_GAP if self._has_later_use else Component.IDLE_TAIL), cause.attempt

    @property
    def _has_later_use(self) -> bool:
        """Return whether a use begins later in the window.

        A use behind the window is not asked: it would change a window that is over.
        """
        later: tuple[Usage | Wait, ...] = (
            *self._usages[self._next_usage : self._next_usage + 1],
            *self._waits[self._next_wait : self._next_wait + 1],
        )
        return any(item.start < self._until for item in later)


def _of_no_job(instance: Instance) -> Component | None:
    """Return the component of what no job waits for."""
    if instance.kind is Kind.RACK:
        return Component.RACK_IDLE
    if instance.is_head:
        return Component.HEAD
    return None if instance.node else Component.OTHER


def _component(usage: Usage, at: int) -> Component:
    is_lost = usage.lost_from is not None and at >= usage.lost_from
    return Component.LOST if is_lost else Component.WORK
