"""A quote: a job's price on each offering, with what the records and Slurm tell beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.quote.history import History, Subject
from toolkit.quote.offers import cheapest

if TYPE_CHECKING:
    from decimal import Decimal

    from toolkit.quote.budget_effect import JobBudgets
    from toolkit.quote.offers import Offer
    from toolkit.quote.request import JobRequest
    from toolkit.quote.share import AccountShare


@dataclass(frozen=True, slots=True)
class Price:
    """Amounts of one offering, for all tasks of a job."""

    usd_limit: Decimal
    """If it runs its whole time limit."""
    usd_usual: Decimal | None
    """If it runs as long as the median of earlier ones."""
    usd_instance: Decimal
    """Of boot and idle tail, where instances are launched for it alone."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote of one moment."""

    at: int
    request: JobRequest
    offers: tuple[Offer, ...]  # in the order in which they will be tried
    history: History
    suspend_seconds: int  # after which Slurm powers an idle node down
    share: AccountShare | None = None
    budgets: JobBudgets | None = None  # None: the cluster has none

    @property
    def first(self) -> Offer:
        """Return the offering that is tried first."""
        return self.offers[0]

    @property
    def usd_limit(self) -> Decimal | None:
        """Return the cost of the whole job on the first offering.

        It is that of its whole time limit; None if no price is known.
        """
        return self.price(self.first).usd_limit if self.first.known else None

    @property
    def tail_seconds(self) -> float:
        """Return the seconds that an instance idles after its last job."""
        known = self.history.tail_seconds
        return self.suspend_seconds if known is None else known.median

    def price(self, offer: Offer) -> Price:
        """Return the job's cost on an offering."""
        tasks, runs, boot = self.request.array_tasks, self.history.run_seconds, 0.0
        if self.history.boot_seconds is not None:
            boot = self.history.boot_seconds.median
        usual = None if runs is None else min(runs.median, self.request.limit)
        return Price(
            usd_limit=offer.usd(self.request.limit) * tasks,
            usd_usual=None if usual is None else offer.usd(usual) * tasks,
            usd_instance=offer.usd_of_instances(boot + self.tail_seconds) * tasks,
        )

    def expected_interruptions(self, offer: Offer) -> float | None:
        """Return the number of interruptions to expect, if known."""
        if not offer.is_spot or self.history.interruptions is None:
            return None
        runs = self.history.run_seconds
        seconds = self.request.limit if runs is None else min(runs.median, self.request.limit)
        return self.history.interruptions.per_hour * offer.nodes * seconds / 3600

    @property
    def cheapest_spot(self) -> Offer | None:
        return cheapest(self.offers, spot=True)

    @property
    def cheapest_on_demand(self) -> Offer | None:
        return cheapest(self.offers, spot=False)


def subject(request: JobRequest, offers: tuple[Offer, ...]) -> Subject:
    """Return what a quote looks for in the records."""
    return Subject(
        name=request.name,
        account=request.account,
        partitions=frozenset(request.partitions),
        pools=frozenset(offer.pool for offer in offers),
        spot_types=frozenset(offer.type for offer in offers if offer.is_spot),
    )
