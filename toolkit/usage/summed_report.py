"""A report of closed days: SQL makes its sums, and its charges when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from toolkit.accounting import attempt_names
from toolkit.accounting.charges import Component
from toolkit.accounting.instances import Kind
from toolkit.accounting.report import Dearest, Group, Key, Report
from toolkit.usage.closed_sums import SUMMED_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.accounting.charges import Charge, ChargePrices, InstanceCost
    from toolkit.prices import PriceSource
    from toolkit.usage.closed_sums import ClosedSums

Name = TypeVar("Name")
Item = TypeVar("Item")


class ReadWhenAsked(Mapping[Name, Item], Generic[Name, Item]):
    """A mapping that is read whole for what is not among the known items."""

    def __init__(self, load: Callable[[], Mapping[Name, Item]]) -> None:
        self._load = load
        self.known: dict[Name, Item] = {}

    def __getitem__(self, name: Name) -> Item:
        return self.known[name] if name in self.known else self._load()[name]

    def __iter__(self) -> Iterator[Name]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


class CostsWhenAsked(Sequence["InstanceCost"]):
    """The costs of instances, whose number is known before they are read."""

    def __init__(self, count: int, load: Callable[[], Sequence[InstanceCost]]) -> None:
        self._count, self._load = count, load

    @overload
    def __getitem__(self, index: int) -> InstanceCost: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[InstanceCost]: ...

    def __getitem__(self, index: int | slice) -> InstanceCost | Sequence[InstanceCost]:
        return self._load()[index]

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True)  # without slots: its sums are kept
class SummedReport(Report):
    """A report that reads sums. Its charges are rows of them."""

    sums: ClosedSums = field(kw_only=True)

    def charges(self) -> Iterator[Charge]:
        """Yield every charge."""
        yield from self._charges

    @cached_property
    def _charges(self) -> Sequence[Charge]:
        return self.sums.charges()

    @cached_property
    def _net(self) -> tuple[int, int]:
        return self.sums.net()

    @cached_property
    def gross(self) -> int:
        """Return the cost of all instances and resources before refunds."""
        return self._net[0]

    @cached_property
    def refund(self) -> int:
        """Return the sum of all refunds, zero or negative."""
        return self._net[1]

    @cached_property
    def unknown_instances(self) -> tuple[str, ...]:
        """Return the instances with an unknown cost."""
        return tuple(self.sums.unknown_instances())

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """Return the kinds of what has a cost."""
        return frozenset(map(Kind, self.sums.kinds()))

    @cached_property
    def racks_net(self) -> int:
        """Return the amortised cost of racks; it is paid in any case."""
        return sum(self.sums.net(Kind.RACK))

    @cached_property
    def _components(self) -> Mapping[Component, tuple[int, bool]]:
        return self.sums.components()

    @cached_property
    def unknown_components(self) -> frozenset[Component]:
        """Return the components with an unknown amount."""
        return frozenset(name for name, (_, unknown) in self._components.items() if unknown)

    @cached_property
    def component_prices(self) -> Mapping[Component, ChargePrices]:
        """Return the sources and the age of each component's prices."""
        return self.sums.prices()

    def components(self) -> dict[Component, int]:
        """Return the money by component, in the order of the report."""
        known = self._components
        return {
            component: known[component][0]
            for component in Component
            if component in known and any(known[component])
        }

    def groups(
        self, keys: Sequence[Key], *, with_shares: bool = True, with_prices: bool = False
    ) -> list[Group]:
        """Return the rows by the given keys, the dearest first.

        There are no shares. SQL has no other keys, nor names that somebody changed.
        """
        if SUMMED_KEYS.issuperset(keys) and isinstance(self.attempts, ReadWhenAsked):
            return self.sums.groups(keys, with_prices=with_prices)
        return super().groups(keys, with_shares=with_shares, with_prices=with_prices)

    def priced_by(self, name: Callable[[PriceSource, int], str]) -> dict[str, int]:
        """Count the instances by a name of their prices' sources and times."""
        return self.sums.priced_by(name)

    def dearest(self, count: int) -> Dearest:
        """Return so many instances, by their cost before refunds."""
        first = self.sums.dearest(count)
        names = [name for name, *_ in first]
        costs, instances = self.sums.costs_of(names)
        if isinstance(self.instances, ReadWhenAsked):
            self.instances.known.update(instances)
        by_name = {cost.instance_id: cost for cost in costs}
        unknown = set(self.unknown_instances).difference(by_name)
        return Dearest(
            tuple(by_name[name] for name, *_ in first),
            len(self.costs) - len(first),
            self.net - sum(gross + refund for _, gross, refund, _ in first),
            bool(unknown),
        )


def with_projects(report: Report, projects: Mapping[str, str]) -> Report:
    """Return the report; a job without a project has its account's.

    Those of sums are read and changed when they are asked for: SQL groups by no project.
    """
    if not isinstance(report, SummedReport):
        return attempt_names.with_projects(report, projects)
    known = report.attempts
    return replace(
        report, attempts=ReadWhenAsked(lambda: attempt_names.projects_of(known, projects))
    )
