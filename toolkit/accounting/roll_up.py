"""Accounts with the accounts below them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounting.report import Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.accounting.report import Report


@dataclass(frozen=True, slots=True)
class RolledUp:
    """An account, its own cost, and that with all accounts below, in micro-dollars."""

    account: str
    depth: int
    own: int
    with_below: int


def roll_up(report: Report, parents: Mapping[str, str]) -> tuple[RolledUp, ...]:
    """Return all accounts with a cost, own or below.

    Each is behind its parent.

    `parents` has the parent of each account of cluster.yaml. Any other is at the top.
    """
    costs = {row.key_values[0]: row.total for row in report.groups([Key.ACCOUNT]) if row.has_jobs}
    return rolled_up(costs, parents)


def rolled_up(costs: Mapping[str, int], parents: Mapping[str, str]) -> tuple[RolledUp, ...]:
    """Return the rows of accounts, given the cost of each."""
    names = set(costs)
    for name in costs:
        parent = parents.get(name, "")
        while parent in parents and parent not in names:
            names.add(parent)
            parent = parents[parent]

    def children(of: str) -> list[str]:
        return sorted(name for name in names if _parent(name, names, parents) == of)

    def rows(of: str, depth: int) -> list[RolledUp]:
        found = []
        for name in children(of):
            below = rows(name, depth + 1)
            own = costs.get(name, 0)
            total = own + sum(row.with_below for row in below if row.depth == depth + 1)
            found += [RolledUp(name, depth, own, total), *below]
        return found

    return tuple(rows("", 0))


def _parent(name: str, names: set[str], parents: Mapping[str, str]) -> str:
    parent = parents.get(name, "")
    return parent if parent in names else ""
