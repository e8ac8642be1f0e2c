"""The cost of accounts between two moments, from instances and the jobs on them. Pure.

An instance costs its price from its first second to its last, with boot and idle time. Jobs that
share it divide the cost by their billing. Boot is the first job's account's, idle time the last's.
A job on a node without an instance, such as a rack's, costs what Slurm bills it. Slurm ends a job
some time after its instance: that time costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets.periods import day_of, days

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurmplugins.budgets.memory import Memory

_MICRO: Final = Decimal("0.000001")
_HOUR: Final = Decimal(3600)


@dataclass(frozen=True, slots=True)
class Allocation:
    """An attempt's nodes and time. Times are epoch seconds."""

    account: str
    nodes: tuple[str, ...]
    begin: float
    end: float
    usd_per_hour: Decimal
    """By its billing TRES, which Slurm fixed when it started."""
    project: str = ""
    """Its project, if a budget is for it."""


@dataclass(frozen=True, slots=True)
class InstanceTime:
    """A time in which EC2 bills one instance."""

    id: str
    node: str
    begin: float
    end: float
    usd_per_hour: Decimal
    """The price at which it was bought."""
    is_static: bool = False
    """It runs without a job as well, and its idle time is nobody's."""


class _Totals:
    """Sums of one call, which begin with those of the memory."""

    def __init__(self, memory: Memory) -> None:
        self.closed_until = memory.closed_until
        self.days = {account: dict(items) for account, items in memory.days.items()}
        self.projects = {
            name: {account: dict(items) for account, items in by_account.items()}
            for name, by_account in memory.projects.items()
        }
        self.nobody = dict(memory.nobody)
        self.last_account = dict(memory.last_account)
        self.last_project = dict(memory.last_project)
        self.unclaimed = dict(memory.unclaimed)

    def add(self, account: str, project: str, at: float, usd: Decimal) -> None:
        if day_of(at) <= self.closed_until:
            return  # a report has said what this day cost
        places = [self.days.setdefault(account, {})]
        if project:
            places.append(self.projects.setdefault(project, {}).setdefault(account, {}))
        for items in places:
            items[day_of(at)] = items.get(day_of(at), Decimal(0)) + usd

    def add_idle(self, instance: str, account: str, at: float, usd: Decimal) -> None:
        self.add(account, self.last_project.get(instance, ""), at, usd)

    def add_to_nobody(self, at: float, usd: Decimal) -> None:
        self.nobody[day_of(at)] = self.nobody.get(day_of(at), Decimal(0)) + usd

    def add_unclaimed(self, instance: str, usd: Decimal) -> None:
        self.unclaimed[instance] = self.unclaimed.get(instance, Decimal(0)) + usd


def measure(
    memory: Memory,
    instances: Sequence[InstanceTime],
    allocations: Sequence[Allocation],
    since: float,
    until: float,
) -> Memory:
    """Return the memory with the cost of everything from `since` to `until`."""
    totals = _Totals(memory)
    by_node: dict[str, list[Allocation]] = defaultdict(list)
    for item in allocations:
        for node in item.nodes:
            by_node[node].append(item)
    for instance in instances:
        _add_instance(totals, instance, by_node[instance.node], since, until)
    times = defaultdict(list)
    for instance in instances:
        times[instance.node].append((instance.begin, instance.end))
    for item in allocations:
        _add_billing(totals, item, times, since, until)
    living = {item.id for item in instances if item.end >= until}
    for instance_id in sorted(totals.unclaimed.keys() - living):
        totals.add_to_nobody(until - 1, totals.unclaimed.pop(instance_id))
    return replace(
        memory,
        measured_from=memory.measured_from or since,
        measured_until=until,
        days=totals.days,
        projects=totals.projects,
        nobody=totals.nobody,
        last_account={key: name for key, name in totals.last_account.items() if key in living},
        last_project={key: name for key, name in totals.last_project.items() if key in living},
        unclaimed=totals.unclaimed,
    )


def rates(
    instances: Iterable[InstanceTime], allocations: Sequence[Allocation], now: float
) -> dict[int, Decimal]:
    """Return US dollars an hour of each running allocation by its place.

    It is the price at which its instances were bought, where they are known.
    """
    price = {item.node: item.usd_per_hour for item in instances if item.begin <= now <= item.end}
    weight: dict[str, Decimal] = defaultdict(Decimal)
    for item in allocations:
        for node in item.nodes:
            weight[node] += _weight(item)
    result = {}
    for place, item in enumerate(allocations):
        own = item.usd_per_hour / max(len(item.nodes), 1)
        result[place] = sum(
            (
                price[node] * _weight(item) / weight[node] if node in price else own
                for node in item.nodes
            ),
            Decimal(0),
        )
    return result


def _add_instance(
    totals: _Totals,
    instance: InstanceTime,
    allocations: Sequence[Allocation],
    since: float,
    until: float,
) -> None:
    begin, end = max(instance.begin, since), min(instance.end, until)
    cuts = {at for item in allocations for at in (item.begin, item.end) if begin < at < end}
    for first, last in _pieces(begin, end, cuts):
        usd = _usd(instance.usd_per_hour, last - first)
        present = [item for item in allocations if item.begin <= first and item.end >= last]
        if present:
            _divide(totals, present, first, usd)
            waiting = totals.unclaimed.pop(instance.id, None)
            if waiting:
                totals.add(present[0].account, present[0].project, first, waiting)
            totals.last_account[instance.id] = present[-1].account
            totals.last_project[instance.id] = present[-1].project
        elif instance.is_static:
            totals.add_to_nobody(first, usd)
        elif account := totals.last_account.get(instance.id):
            totals.add_idle(instance.id, account, first, usd)
        else:
            totals.add_unclaimed(instance.id, usd)


def _divide(totals: _Totals, present: Sequence[Allocation], at: float, usd: Decimal) -> None:
    """Divide one amount by the jobs' weights.

    The last job gets what rounding leaves.
    """
    whole = sum((_weight(item) for item in present), Decimal(0))
    left = usd
    for item in present[:-1]:
        part = (usd * _weight(item) / whole).quantize(_MICRO)
        totals.add(item.account, item.project, at, part)
        left -= part
    totals.add(present[-1].account, present[-1].project, at, left)


def _add_billing(
    totals: _Totals,
    item: Allocation,
    times: Mapping[str, Sequence[tuple[float, float]]],
    since: float,
    until: float,
) -> None:
    """Add what Slurm bills for nodes without an instance."""
    begin, end = max(item.begin, since), min(item.end, until)
    for node in item.nodes:
        cuts = {at for pair in times.get(node, ()) for at in pair if begin < at < end}
        for first, last in _pieces(begin, end, cuts):
            if not any(
                (start <= first and stop >= last) or item.begin < stop <= first
                for start, stop in times.get(node, ())
            ):
                usd = _usd(item.usd_per_hour / len(item.nodes), last - first)
                totals.add(item.account, item.project, first, usd)


def _pieces(begin: float, end: float, cuts: set[float]) -> Iterator[tuple[float, float]]:
    """Yield the parts between two cuts, each within one day."""
    if begin >= end:
        return
    marks = sorted({begin, end, *cuts})
    for first, last in pairwise(marks):
        yield from days(first, last)


def _weight(item: Allocation) -> Decimal:
    """Return a job's weight on a shared node.

    Jobs without billing count alike.
    """
    return max(item.usd_per_hour / max(len(item.nodes), 1), _MICRO)


def _usd(usd_per_hour: Decimal, seconds: float) -> Decimal:
    return (usd_per_hour * Decimal(seconds) / _HOUR).quantize(_MICRO)
