"""The cheapest start before a deadline, from the history of spot prices. Pure.

The forecast is today's price, moved by what the same hours of the last days differed from the
hour of now. The same choice on past days, with the prices that came, says what it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final

from toolkit.quote.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.prices import PriceSpan, SpotHistory

HOUR: Final = 3600
DAY: Final = 86_400
DAYS: Final = 14
"""Days of history that a forecast looks back."""
LEAST_DAYS: Final = 3
"""With fewer days, a pattern of hours is chance."""
LEAST_SAVING: Final = 0.01
"""A start that saves less is not worth a wait."""


@dataclass(frozen=True, slots=True)
class SpotMarket:
    """The spot prices of one type and zone, of which a job takes several nodes."""

    history: SpotHistory
    instance_type: str
    zone: str
    nodes: float
    """Whole nodes that the job's parts add up to."""

    def price(self, second: int) -> float | None:
        """Return the price of a second; None where it is not known."""
        spans = self.history.spans(self.instance_type, self.zone, second, second + 1)
        return float(spans[0].price.usd_per_hour) if spans else None

    def cost(self, start: int, end: int) -> float | None:
        """Return the real cost from start to end, if known."""
        spans = self.history.spans(self.instance_type, self.zone, start, end)
        if not spans or spans[0].start > start or _has_gap(spans):
            return None
        hours = sum(
            float(span.price.usd_per_hour) * (span.end - span.start) / HOUR for span in spans
        )
        return hours * self.nodes


@dataclass(frozen=True, slots=True)
class Backtest:
    """Savings of the same choice on past days."""

    days: int
    saved: float
    """Part of the cost of starting at once; below 0: it cost more."""


@dataclass(frozen=True, slots=True)
class Start:
    """A chosen start. Times are epoch seconds."""

    begin: int
    deadline: int
    usd_now: Decimal
    """Expected cost of the earliest start, for the whole time limit."""
    usd: Decimal
    """Expected cost of the chosen start."""
    days: int
    """Days of history behind the forecast."""
    backtest: Backtest | None = None

    @property
    def waits(self) -> bool:
        """Return whether the job is to begin later."""
        return self.usd < self.usd_now

    @property
    def saving(self) -> float:
        """Return the expected saving as a part."""
        return float(1 - self.usd / self.usd_now) if self.usd_now else 0.0


def check_time(left: int, run_seconds: int, boot: int, copy_seconds: int = 0) -> None:
    """Raise BadRequest if a job can't end in time."""
    if run_seconds + boot + copy_seconds <= left:
        return
    copies = f", its data is copied for {copy_seconds / HOUR:.1f} h" if copy_seconds else ""
    raise BadRequest(
        f"the job can't end by then: its limit is {run_seconds / HOUR:.1f} h{copies}, and"
        f" {max(0, left) / HOUR:.1f} h are left",
        next_step="lower --time, or give a later --by",
    )


def choose(
    market: SpotMarket,
    *,
    now: int,
    deadline: int,
    run_seconds: int,
    boot: float,
    copy_seconds: int = 0,
) -> Start:
    """Return the cheapest start before a deadline.

    It may run its whole limit, and starts when its data is copied. Raises BadRequest where there
    is not enough time.
    """
    check_time(deadline - now, run_seconds, int(boot), copy_seconds)
    latest = deadline - run_seconds - int(boot)
    slack = Slack(copy_seconds, latest - now)
    best, at_once, cheapest = _best(market, now, slack, run_seconds)
    return Start(
        begin=best,
        deadline=deadline,
        usd_now=_usd(at_once),
        usd=_usd(cheapest),
        days=len(_known_days(market, now)),
        backtest=_backtest(market, now, slack, run_seconds),
    )


@dataclass(frozen=True, slots=True)
class Slack:
    """The earliest and the latest start, as seconds from now."""

    earliest: int
    latest: int

    def starts(self, now: int) -> list[int]:
        """Return the earliest start, and each full hour after it."""
        first = now + self.earliest
        return [first, *range(first - first % HOUR + HOUR, now + self.latest + 1, HOUR)]


def _best(market: SpotMarket, now: int, slack: Slack, run_seconds: int) -> tuple[int, float, float]:
    """Return the best start, the earliest one's cost, the best cost."""
    earliest = now + slack.earliest
    days = _known_days(market, now)
    current = market.price(now)
    if current is None:
        raise BadRequest(f"no spot price of {market.instance_type} in {market.zone} is known")
    if len(days) < LEAST_DAYS:
        cost = current * market.nodes * run_seconds / HOUR
        return earliest, cost, cost
    shape = _hours(market, days, now)
    costs = {
        start: _expected(shape, current, now, start, run_seconds) * market.nodes
        for start in slack.starts(now)
    }
    best = min(costs, key=lambda start: (costs[start], start))
    if costs[best] > costs[earliest] * (1 - LEAST_SAVING):
        best = earliest
    return best, costs[earliest], costs[best]


def _known_days(market: SpotMarket, now: int) -> list[int]:
    """Return the past days with known prices, as days back."""
    return [
        back for back in range(1, DAYS + 1) if market.cost(now - back * DAY, now - (back - 1) * DAY)
    ]


def _hours(market: SpotMarket, days: Sequence[int], now: int) -> list[float]:
    """Return the mean price of each hour after now, over these days."""
    return [
        fmean(
            cost
            for back in days
            if (cost := _hour_cost(market, now - back * DAY + hour * HOUR)) is not None
        )
        for hour in range(DAY // HOUR)
    ]


def _hour_cost(market: SpotMarket, start: int) -> float | None:
    cost = market.cost(start, start + HOUR)
    return None if cost is None else cost / market.nodes


def _expected(shape: Sequence[float], current: float, now: int, start: int, seconds: int) -> float:
    """Return the expected cost of one node from a start on."""
    total, at, end = 0.0, start, start + seconds
    while at < end:
        hour = (at - now) // HOUR
        until = min(end, now + (hour + 1) * HOUR)
        price = max(0.0, current + shape[hour % len(shape)] - shape[0])
        total += price * (until - at) / HOUR
        at = until
    return total


def _backtest(market: SpotMarket, now: int, slack: Slack, run_seconds: int) -> Backtest | None:
    """Make the same choice on past days, by what was known then."""
    chosen, at_once, count = 0.0, 0.0, 0
    for back in range(1, DAYS + 1):
        then = now - back * DAY
        if then + slack.latest + run_seconds > now or len(_known_days(market, then)) < LEAST_DAYS:
            continue
        best, _, _ = _best(market, then, slack, run_seconds)
        first = then + slack.earliest
        costs = market.cost(best, best + run_seconds), market.cost(first, first + run_seconds)
        if costs[0] is not None and costs[1]:
            chosen, at_once, count = chosen + costs[0], at_once + costs[1], count + 1
    return Backtest(count, 1 - chosen / at_once) if count else None


def _has_gap(spans: Sequence[PriceSpan]) -> bool:
    return any(earlier.end < later.start for earlier, later in pairwise(spans))


def _usd(amount: float) -> Decimal:
    return Decimal(str(amount)).quantize(Decimal("0.0001"))
