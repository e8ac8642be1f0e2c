"""The report: charges grouped for people, and the facts they were made from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from toolkit.accounting.attempts import attempt_numbers, job_labels
from toolkit.accounting.charges import Component
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.instances import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.bill_status import BillStatus
    from toolkit.accounting.charges import Charge, ChargePrices, InstanceCost
    from toolkit.accounting.closed_part import ClosedPart
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.period_part import PeriodPart
    from toolkit.accounting.set_aside import SetAside
    from toolkit.prices import PriceSource


PRINTED = 20
"""The most rows of jobs, and of instances, that a terminal's report has."""


class Key(StrEnum):
    """A property of attempts, or of instances, that rows can be grouped by."""

    ACCOUNT = "account"
    USER = "user"
    PARTITION = "partition"
    QOS = "qos"
    PROJECT = "project"
    RUN = "run"
    """The job's name: a training that was submitted again under its name is one row."""
    JOB = "job"
    POOL = "pool"
    TYPE = "type"


NO_JOB = ""
"""The group of charges without a job: the head node, failed launches, unallocated parts."""

NO_JOB_LABEL = "(cluster)"
"""The name of this group for people."""


@dataclass(slots=True)
class Group:
    """A row: the values of its keys, its jobs and attempts, and the money by component."""

    key_values: tuple[str, ...]
    jobs: set[str] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)
    seconds: Fraction = Fraction(0)  # instance time with work in it, lost or not
    micro: dict[Component, int] = field(default_factory=lambda: defaultdict(int))  # micro-dollars
    unknown: set[Component] = field(default_factory=set)  # components with an unknown amount
    prices: ChargePrices | None = None  # where they are asked for

    @property
    def total(self) -> int:
        """Return the sum of all components in micro-dollars, refunds subtracted."""
        return sum(self.micro.values())

    @property
    def has_jobs(self) -> bool:
        """Return whether jobs caused it; False for the one row without jobs."""
        return any(self.key_values)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the values of its keys for people."""
        return tuple(value or NO_JOB_LABEL for value in self.key_values)

    def sum_of(self, *components: Component) -> int:
        """Return the sum of some components."""
        return sum(self.micro.get(component, 0) for component in components)

    def has_unknown(self, *components: Component) -> bool:
        """Return whether an amount is unknown, of some components or of any."""
        return bool(self.unknown.intersection(components) if components else self.unknown)

    def add(self, charge: Charge, attempt: Attempt | None, job: str) -> None:
        """Add one charge of an attempt of the named job."""
        self.micro[charge.component] += charge.micro
        if not charge.price_known:
            self.unknown.add(charge.component)
        if charge.component in {Component.WORK, Component.LOST}:
            self.seconds += charge.seconds
        if attempt is not None:
            self.jobs.add(job)
            self.attempts.add(attempt.key)


@dataclass(frozen=True, slots=True)
class Dearest:
    """The dearest instances of a report, and what the others cost."""

    costs: tuple[InstanceCost, ...]
    others: int
    others_net: int
    others_unknown: bool  # a part of it is


@dataclass(frozen=True)  # without slots: its sums are kept
class Report:
    """The content of the terminal's, the HTML, the CSV and the JSON report."""

    cluster: str
    window: Window
    made_at: int  # epoch seconds
    costs: Sequence[InstanceCost]
    instances: Mapping[str, Instance]  # by instance id
    attempts: Mapping[int, Attempt]  # by DBIndex
    notes: tuple[str, ...]
    set_aside: tuple[SetAside, ...] = ()
    jobs_without_cost: tuple[str, ...] = ()  # on nodes without a known instance
    cost_policy: CostPolicy = field(default_factory=CostPolicy)
    shares: tuple[Charge, ...] = ()  # what jobs share; their sum is zero
    asked_since: int | None = None  # the window begins later, with the first instance
    bill_status: BillStatus | None = None  # None: nobody has read the record of bills
    closed: ClosedPart | None = None  # None: no day of it was read from closed charges
    period: PeriodPart | None = None  # None: its time is no accounting period

    @cached_property
    def gross(self) -> int:
        """Return the cost of all instances and resources before refunds."""
        return sum(cost.gross for cost in self.costs)

    @cached_property
    def refund(self) -> int:
        """Return the sum of all refunds, zero or negative."""
        return sum(cost.refund for cost in self.costs)

    @property
    def net(self) -> int:
        """Return the cost of all instances and resources after refunds.

        The groups sum to this, and so do the components.
        """
        return self.gross + self.refund

    @cached_property
    def racks_net(self) -> int:
        """Return the amortised cost of racks; it is paid in any case."""
        kinds = {name: item.kind for name, item in self.instances.items()}
        return sum(cost.net for cost in self.costs if kinds[cost.instance_id] is Kind.RACK)

    @cached_property
    def has_racks(self) -> bool:
        """Return whether jobs held nodes of racks."""
        return Kind.RACK in self.kinds

    @cached_property
    def attempt_numbers(self) -> Mapping[int, int]:
        """Return each attempt's number within its job, by DBIndex."""
        return attempt_numbers(self.attempts.values())

    @cached_property
    def job_labels(self) -> Mapping[int, str]:
        """Return the name of each attempt's job, by DBIndex."""
        return job_labels(self.attempts.values())

    @cached_property
    def unknown_costs(self) -> tuple[str, ...]:
        """Return the instances, jobs and records with an unknown cost."""
        records = [item.name for item in self.set_aside if item.has_unknown_cost]
        return (*self.unknown_instances, *self.jobs_without_cost, *records)

    @cached_property
    def unknown_instances(self) -> tuple[str, ...]:
        """Return the instances with an unknown cost."""
        return tuple(cost.instance_id for cost in self.costs if cost.has_unknown)

    @cached_property
    def unknown_components(self) -> frozenset[Component]:
        """Return the components with an unknown amount."""
        return frozenset(charge.component for charge in self.charges() if not charge.price_known)

    def charges(self) -> Iterator[Charge]:
        """Yield every charge of every instance, then the shares of jobs."""
        for cost in self.costs:
            yield from cost.charges
        yield from self.shares

    @cached_property
    def has_instances_alone(self) -> bool:
        """Return whether nothing else than instances has a cost."""
        return self.kinds <= {Kind.INSTANCE}

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """Return the kinds of what has a cost."""
        return frozenset(item.kind for item in self.instances.values())

    def priced_by(self, name: Callable[[PriceSource, int], str]) -> dict[str, int]:
        """Count the instances by a name of their prices' sources and times."""
        counts: dict[str, int] = {}
        for cost in self.costs:
            for text in dict.fromkeys(name(price.source, price.as_of) for price in cost.prices):
                counts[text] = counts.get(text, 0) + 1
        return counts

    def dearest(self, count: int) -> Dearest:
        """Return so many instances, by their cost before refunds."""
        costs = sorted(self.costs, key=lambda cost: (-cost.gross, cost.instance_id))
        others = costs[count:]
        return Dearest(
            tuple(costs[:count]),
            len(others),
            sum(cost.net for cost in others),
            any(cost.has_unknown for cost in others),
        )

    @cached_property
    def component_prices(self) -> Mapping[Component, ChargePrices]:
        """Return the sources and the age of each component's prices."""
        known: dict[Component, ChargePrices] = {}
        for charge in self.charges():
            if charge.prices is not None:
                known[charge.component] = charge.prices.joined(known.get(charge.component))
        return known

    def components(self) -> dict[Component, int]:
        """Return the money by component, in the order of the report.

        Components without money are left out, but for an unknown amount.
        """
        sums: dict[Component, int] = defaultdict(int)
        for charge in self.charges():
            sums[charge.component] += charge.micro
        return {
            component: sums[component]
            for component in Component
            if sums[component] or component in self.unknown_components
        }

    def groups(
        self, keys: Sequence[Key], *, with_shares: bool = True, with_prices: bool = False
    ) -> list[Group]:
        """Return the rows by the given keys, the dearest first.

        The row without jobs comes last. Without shares a job's cost is the same in every
        report that has all of it. With prices each row has the sources of its amounts.
        """
        rows: dict[tuple[str, ...], Group] = {}
        own_charges = (charge for cost in self.costs for charge in cost.charges)
        for charge in self.charges() if with_shares else own_charges:
            attempt = None if charge.attempt is None else self.attempts[charge.attempt]
            key_values = tuple(self.key_value(charge, key) for key in keys)
            row = rows.setdefault(key_values, Group(key_values))
            row.add(charge, attempt, self.key_value(charge, Key.JOB))
            if with_prices and charge.prices is not None:
                row.prices = charge.prices.joined(row.prices)
        return sorted(rows.values(), key=lambda row: (not row.has_jobs, -row.total, row.key_values))

    def key_value(self, charge: Charge, key: Key) -> str:
        """Return a charge's value of a key; empty if it has none."""
        if key in {Key.POOL, Key.TYPE}:
            instance = self.instances.get(charge.instance_id)  # a share belongs to none
            return NO_JOB if instance is None else _instance_value(instance, key)
        attempt = None if charge.attempt is None else self.attempts[charge.attempt]
        return NO_JOB if attempt is None else self._attempt_value(attempt, key)

    def _attempt_value(self, attempt: Attempt, key: Key) -> str:
        if key is Key.JOB:
            return self.job_labels[attempt.key]
        values = {
            Key.ACCOUNT: attempt.account,
            Key.USER: attempt.user,
            Key.PARTITION: attempt.partition,
            Key.QOS: attempt.qos,
            Key.PROJECT: attempt.project,
            Key.RUN: attempt.name,
        }
        return values[key] or f"(no {'name' if key is Key.RUN else key.value})"


def _instance_value(instance: Instance, key: Key) -> str:
    """Return the pool or the type of an instance.

    A resource has its kind.
    """
    value = instance.pool if key is Key.POOL else instance.instance_type
    if value or instance.kind is not Kind.INSTANCE:
        return value or instance.kind.value
    return f"(no {key.value})"
