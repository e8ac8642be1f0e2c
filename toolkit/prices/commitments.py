"""Divides what was paid in advance over the instances that run meanwhile.

A commitment pays for on-demand instances in the order of their launch, as far as it goes.
Capacity blocks come first, then reserved instances, then savings plans: AWS applies them
in this order. A savings plan pays for its largest discounts first. The rest of a
commitment is paid without an instance, and the report shows it.

AWS applies commitments by the hour and to all clusters of an account. This module applies
them by the second and to one cluster.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.prices.contracts import Reservation, SavingsPlan, whole_places
from toolkit.prices.model import Price, PriceQuery, PriceSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.prices.book import PriceBook
    from toolkit.prices.contracts import Term


@dataclass(frozen=True, slots=True)
class Life:
    """The billed life of an instance, or a part of it that nothing has paid for."""

    query: PriceQuery
    start: int
    end: int

    @property
    def rank(self) -> tuple[int, str, int]:
        """Return its place in the order of launches."""
        return self.query.launched_at, self.query.instance_id, self.start


@dataclass(frozen=True, slots=True)
class UnusedCommitment:
    """The part of a commitment that paid for no instance."""

    name: str
    price: Price
    start: int
    end: int
    usd: Fraction


@dataclass(frozen=True, slots=True)
class Coverage:
    """The spans that commitments pay for, by instance id, and what is left of them."""

    spans: Mapping[str, tuple[PriceSpan, ...]] = field(default_factory=dict)
    unused: tuple[UnusedCommitment, ...] = ()


def cover(book: PriceBook, lives: Iterable[Life], since: int, until: int) -> Coverage:
    """Return what commitments pay for in since ≤ t < until."""
    if not book.contracts.has_commitments:
        return Coverage()
    remaining = [
        Life(life.query, max(life.start, since), min(life.end, until))
        for life in lives
        if max(life.start, since) < min(life.end, until)
    ]
    spans: dict[str, list[PriceSpan]] = defaultdict(list)
    unused = []
    commitments: list[Reservation | SavingsPlan] = [
        *book.contracts.reservations,
        *book.contracts.savings_plans,
    ]
    for commitment in commitments:
        start, end = _clipped(commitment.term, since, until)
        if start >= end:
            continue
        sweep = _Sweep(book, commitment, start, end)
        sweep.run([life for life in remaining if commitment.match.includes(life.query)])
        for life, paid in sweep.paid.items():
            spans[life.query.instance_id].extend(paid)
        remaining = [rest for life in remaining for rest in _rest(life, sweep.paid.get(life, ()))]
        unused.append(sweep.unused())
    ordered = {key: tuple(sorted(own, key=lambda span: span.start)) for key, own in spans.items()}
    return Coverage(ordered, tuple(item for item in unused if item.usd > 0))


class _Sweep:
    """A commitment, from its first second in the report's time to its last."""

    def __init__(
        self, book: PriceBook, commitment: Reservation | SavingsPlan, start: int, end: int
    ) -> None:
        self._book = book
        self._commitment = commitment
        self._start, self._end = start, end
        self._used = Fraction(0)  # US dollars x seconds an hour
        self.paid: dict[Life, list[PriceSpan]] = defaultdict(list)

    def run(self, lives: Sequence[Life]) -> None:
        """Pay for the lives, the first launch first."""
        clipped = [life for life in lives if life.start < self._end and life.end > self._start]
        cuts = {self._start, self._end}
        for life in clipped:
            cuts |= {max(life.start, self._start), min(life.end, self._end)}
            cuts |= self._book.contracts.changes(life.query.instance_type, self._book.region)
        seconds = sorted(cut for cut in cuts if self._start <= cut <= self._end)
        arrivals = sorted(clipped, key=lambda life: life.start, reverse=True)
        active: list[Life] = []
        for low, high in pairwise(seconds):
            active = [life for life in active if life.end > low]
            while arrivals and arrivals[-1].start <= low:
                insort(active, arrivals.pop(), key=self._rank)
            self._pay(active, low, high)

    def unused(self) -> UnusedCommitment:
        """Return the part that paid for no instance."""
        commitment = self._commitment
        count = commitment.count if isinstance(commitment, Reservation) else 1
        whole = Fraction(commitment.usd_per_hour) * count * (self._end - self._start)
        price = Price(
            commitment.usd_per_hour * count, commitment.source, self._book.contracts.as_of
        )
        usd = (whole - self._used) / 3600
        return UnusedCommitment(commitment.name, price, self._start, self._end, usd)

    def _rank(self, life: Life) -> tuple[Decimal, tuple[int, str, int]]:
        if isinstance(self._commitment, Reservation):
            return Decimal(0), life.rank
        on_demand = self._on_demand(life, life.start)
        rate = self._commitment.rate(life.query, on_demand)
        if rate is None or not on_demand.is_known:
            return Decimal(1), life.rank
        return rate / on_demand.usd_per_hour, life.rank

    def _pay(self, active: Iterable[Life], low: int, high: int) -> None:
        commitment = self._commitment
        left = Decimal(commitment.count) if isinstance(commitment, Reservation) else None
        budget = commitment.usd_per_hour
        for life in active:
            if left is not None:
                if left == 0:
                    break
                usd, left = commitment.usd_per_hour, left - 1
                used = usd
            else:
                if budget == 0:
                    break
                usd, used = self._share(life, low, budget)
                budget -= used
                if used == 0:
                    continue
            self._used += Fraction(used) * (high - low)
            price = Price(usd, commitment.source, self._book.contracts.as_of)
            _extend(self.paid[life], PriceSpan(low, high, price))

    def _share(self, life: Life, second: int, budget: Decimal) -> tuple[Decimal, Decimal]:
        """Return an hour's price, and what it takes of the commitment.

        What the commitment does not pay for is at the price on demand.
        """
        if not isinstance(self._commitment, SavingsPlan):
            raise TypeError("a reservation has no budget")
        on_demand = self._on_demand(life, second)
        rate = self._commitment.rate(life.query, on_demand)
        if rate is None:
            return Decimal(0), Decimal(0)
        if rate <= budget:
            return rate, rate
        if not on_demand.is_known:
            return Decimal(0), Decimal(0)
        rest = on_demand.usd_per_hour * (1 - budget / rate)
        return whole_places(budget + rest), budget

    def _on_demand(self, life: Life, second: int) -> Price:
        return self._book.on_demand(life.query, second)


def _clipped(term: Term, since: int, until: int) -> tuple[int, int]:
    return max(term.since, since), until if term.until is None else min(term.until, until)


def _extend(spans: list[PriceSpan], span: PriceSpan) -> None:
    """Add a span, or lengthen the last one of that price."""
    if spans and spans[-1].end == span.start and spans[-1].price == span.price:
        spans[-1] = PriceSpan(spans[-1].start, span.end, span.price)
    else:
        spans.append(span)


def _rest(life: Life, paid: Iterable[PriceSpan]) -> list[Life]:
    """Return the parts of a life that the spans leave out."""
    parts, position = [], life.start
    for span in paid:
        if position < span.start:
            parts.append(Life(life.query, position, span.start))
        position = span.end
    if position < life.end:
        parts.append(Life(life.query, position, life.end))
    return parts
