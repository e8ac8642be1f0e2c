"""Faults on demand: capacity pools, forced errors. State only, no I/O.

A pool is an instance type in a zone on a market. Without a rule it has no end. A rule
names pools by a pattern `TYPE[/ZONE[/MARKET]]`, each part a name or `*`.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARKETS = ("spot", "on-demand")
_PARTS = 3


@dataclass(frozen=True, slots=True)
class CapacityPool:
    """Instances of one type that EC2 has in a zone, on one market."""

    instance_type: str
    zone: str
    market: str

    def __str__(self) -> str:
        return f"{self.instance_type}/{self.zone}/{self.market}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of the pools that a rule covers."""

    instance_type: str = "*"
    zone: str = "*"
    market: str = "*"

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read `TYPE[/ZONE[/MARKET]]`; `spot` or `on-demand` alone is every pool of that market."""
        if text in MARKETS:
            return cls(market=text)
        parts = [part or "*" for part in text.split("/")]
        if len(parts) > _PARTS:
            raise ValueError(f"{text!r} is not TYPE[/ZONE[/MARKET]]")
        parts += ["*"] * (_PARTS - len(parts))
        if parts[2] not in (*MARKETS, "*"):
            raise ValueError(f"{parts[2]!r} is not a market: spot or on-demand")
        return cls(*parts)

    def covers(self, pool: CapacityPool) -> bool:
        """Say whether the pool is one of these."""
        pairs = (
            (pool.instance_type, self.instance_type),
            (pool.zone, self.zone),
            (pool.market, self.market),
        )
        return all(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)

    def __str__(self) -> str:
        return f"{self.instance_type}/{self.zone}/{self.market}"


@dataclass(slots=True)
class Rule:
    """A limit: so many more instances; `returns` gives a place back when one ends."""

    pattern: Pattern
    free: int
    returns: bool = False
    until: float | None = None


@dataclass(slots=True)
class Injection:
    """An error to answer instead of an action: `count` times, or until a moment, or both.

    With `lost`, the action is carried out first and only its answer is lost. With `inside`, the
    call succeeds and `count` offerings of its answer carry the error, as a fleet's `Errors` do.
    """

    action: str  # an fnmatch pattern of API actions
    code: str
    message: str
    count: int | None = None
    until: float | None = None
    lost: bool = False
    inside: bool = False


@dataclass(slots=True)
class Faults:
    """The faults in force. Not thread-safe: used under the local cloud's lock."""

    clock: Callable[[], float]
    rules: dict[Pattern, Rule] = field(default_factory=dict)
    injections: list[Injection] = field(default_factory=list)

    def limit(
        self, pattern: Pattern, free: int, *, returns: bool = False, seconds: float | None = None
    ) -> None:
        """Let the pools of the pattern give `free` instances more, together."""
        until = None if seconds is None else self.clock() + seconds
        self.rules[pattern] = Rule(pattern, max(0, free), returns, until)

    def restore(self, pattern: Pattern | None = None) -> None:
        """Lift the limit of one pattern, or every limit."""
        if pattern is None:
            self.rules.clear()
        else:
            self.rules.pop(pattern, None)

    def take_capacity(self, pool: CapacityPool, *, at_least: int, at_most: int) -> int:
        """Take instances from the pool; return how many.

        The number is between the two bounds; 0 when the pool has too few.
        """
        rules = self._rules(pool)
        count = min([at_most, *(rule.free for rule in rules)])
        if count < at_least:
            return 0
        for rule in rules:
            rule.free -= count
        return count

    def return_capacity(self, pool: CapacityPool, count: int) -> None:
        """Return a refused launch's instances to the pool."""
        for rule in self._rules(pool):
            rule.free += count

    def available(self, pools: Iterable[CapacityPool], at_most: int) -> list[int]:
        """Return how many instances each pool would give, in order."""
        free_by_pattern = {pattern: rule.free for pattern, rule in self.rules.items()}
        counts = []
        for pool in pools:
            patterns = [rule.pattern for rule in self._rules(pool)]
            count = min([at_most, *(free_by_pattern[pattern] for pattern in patterns)])
            for pattern in patterns:
                free_by_pattern[pattern] -= count
            counts.append(count)
        return counts

    def record_termination(self, pool: CapacityPool) -> None:
        """Note that an instance of the pool ended."""
        for rule in self._rules(pool):
            if rule.returns:
                rule.free += 1

    def inject(self, injection: Injection) -> None:
        """Answer coming calls with an error."""
        self.injections.append(injection)

    def next_injection(self, action: str, *, inside: bool = False) -> Injection | None:
        """Return the error for this call, and count it.

        With `inside`, it is the error for one offering inside the call's answer.
        """
        now = self.clock()
        self.injections = [
            injection
            for injection in self.injections
            if injection.until is None or injection.until > now
        ]
        for injection in self.injections:
            if injection.inside != inside or not fnmatch.fnmatchcase(action, injection.action):
                continue
            if injection.count is not None:
                injection.count -= 1
                if injection.count <= 0:
                    self.injections.remove(injection)
            return injection
        return None

    def clear_injections(self) -> None:
        """Answer every call normally again."""
        self.injections.clear()

    def _rules(self, pool: CapacityPool) -> list[Rule]:
        now = self.clock()
        for pattern in _expired(self.rules.values(), now):
            del self.rules[pattern]
        return [rule for rule in self.rules.values() if rule.pattern.covers(pool)]


def _expired(rules: Iterable[Rule], now: float) -> list[Pattern]:
    return [rule.pattern for rule in rules if rule.until is not None and rule.until <= now]
