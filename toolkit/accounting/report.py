"""The report: charges grouped for people, and the facts they were made from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import Charge, InstanceCost
    from toolkit.accounting.instances import Instance


class Key(StrEnum):
    """What rows can be grouped by."""

    ACCOUNT = "account"
    USER = "user"
    JOB = "job"


NOBODY = ""
"""The group of what no job caused: the head node, failed launches, unallocated parts."""


@dataclass(slots=True)
class Group:
    """One row: who, how many jobs and attempts, and the money by component."""

    who: tuple[str, ...]
    jobs: set[str] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)
    seconds: Fraction = Fraction(0)
    micro: dict[Component, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def total(self) -> int:
        """All components, in micro-dollars, refunds taken off."""
        return sum(self.micro.values())

    @property
    def caused(self) -> bool:
        """Whether jobs caused it; False for the one row of what nobody caused."""
        return any(self.who)

    def of(self, *components: Component) -> int:
        """The money of some components together."""
        return sum(self.micro.get(component, 0) for component in components)

    def add(self, charge: Charge, attempt: Attempt | None) -> None:
        """Count one charge in."""
        self.micro[charge.component] += charge.micro
        if charge.component in {Component.WORK, Component.LOST}:
            self.seconds += charge.seconds
        if attempt is not None:
            self.jobs.add(attempt.job_id)
            self.attempts.add(attempt.key)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the terminal, the HTML, the CSV and the JSON show."""

    cluster: str
    window: Window
    made_at: int
    costs: tuple[InstanceCost, ...]
    instances: Mapping[str, Instance]
    attempts: Mapping[int, Attempt]
    notes: tuple[str, ...]

    @property
    def gross(self) -> int:
        """The cost of all instances before refunds."""
        return sum(cost.gross for cost in self.costs)

    @property
    def refund(self) -> int:
        """Zero or negative."""
        return sum(cost.refund for cost in self.costs)

    @property
    def net(self) -> int:
        """What the instances cost. The groups sum to this, and so do the components."""
        return self.gross + self.refund

    def charges(self) -> Iterator[Charge]:
        """Every charge of every instance."""
        for cost in self.costs:
            yield from cost.charges

    def components(self) -> dict[Component, int]:
        """The money by component, in the order of the report, those without money left out."""
        sums: dict[Component, int] = defaultdict(int)
        for charge in self.charges():
            sums[charge.component] += charge.micro
        return {component: sums[component] for component in Component if sums[component]}

    def groups(self, keys: Sequence[Key]) -> list[Group]:
        """The rows by the given keys, the dearest first, what nobody caused last."""
        rows: dict[tuple[str, ...], Group] = {}
        for charge in self.charges():
            attempt = None if charge.attempt is None else self.attempts[charge.attempt]
            who = tuple(_value(attempt, key) for key in keys)
            rows.setdefault(who, Group(who)).add(charge, attempt)
        return sorted(rows.values(), key=lambda row: (not row.caused, -row.total, row.who))


def _value(attempt: Attempt | None, key: Key) -> str:
    if attempt is None:
        return NOBODY
    match key:
        case Key.ACCOUNT:
            return attempt.account or "(no account)"
        case Key.USER:
            return attempt.user or "(no user)"
        case Key.JOB:
            return attempt.job_id
