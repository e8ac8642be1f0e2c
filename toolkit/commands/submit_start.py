"""`toolkit submit --by --cheapest`: a start and a deadline for a job, chosen by spot's history."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.options import find_config_file, load
from toolkit.datasets.copy_plan import duration
from toolkit.submit.plan import AddedOption

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.quote.cheapest_start import Start
    from toolkit.quote.offers import Offer
    from toolkit.quote.planned_starts import PlannedStart
    from toolkit.quote.request import JobRequest


@dataclass(frozen=True, slots=True)
class ChosenStart:
    """A deadline, and the start that was chosen before it, if any."""

    deadline: int
    offer: Offer | None = None
    start: Start | None = None
    copy_seconds: int = 0
    """How long the copies before the job take."""
    buys_spot: bool = True
    price_now: Decimal | None = None
    """The spot price of a whole instance at submission; None: it is not known."""
    now: int = 0

    def planned(self, job: str) -> PlannedStart | None:
        """Return a later start; None if the job begins at once."""
        from toolkit.quote.planned_starts import PlannedStart

        start, offer, price = self.start, self.offer, self.price_now
        if start is None or offer is None or price is None or not start.waits:
            return None
        return PlannedStart(job, self.now, start.begin, self.deadline, offer.type, price)

    @property
    def options(self) -> list[AddedOption]:
        """Return sbatch's options. `uts` is Slurm's word for epoch seconds (parse_time.c)."""
        added = []
        if self.start is not None and self.start.waits:
            why = f"spot is expected to be {self.start.saving:.0%} cheaper then"
            added.append(AddedOption(f"--begin=uts{self.start.begin}", why))
        deadline = AddedOption(f"--deadline=uts{self.deadline}", f"by {_clock(self.deadline)}")
        return [*added, deadline]

    def lines(self) -> list[str]:
        """Return what people read about it."""
        copies = (
            [f"its data is copied first: about {duration(self.copy_seconds)}"]
            if self.copy_seconds
            else []
        )
        return [*copies, *self._start_lines()]

    def _start_lines(self) -> list[str]:
        if not self.buys_spot:
            return ["the partition buys no spot: every start costs the same, so it begins at once"]
        if self.start is None or self.offer is None:
            return []
        start, where = self.start, f"{self.offer.type} in {self.offer.zone}"
        first = (
            f"begins {_clock(start.begin)}: about {start.usd:.2f} USD on {where}, in place of"
            f" {start.usd_now:.2f} now"
            if start.waits
            else "begins at once: no later start is expected to be cheaper by more than 1 %"
        )
        test = start.backtest
        worth = (
            f"{start.days} days of prices are too few for more"
            if test is None
            else f"the same choice on {test.days} past days would have saved {test.saved:.1%}"
        )
        return [first, worth]

    def as_json(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        start = self.start
        return {
            "deadline": self.deadline,
            "copy_seconds": self.copy_seconds,
            "begin": start.begin if start and start.waits else None,
            "usd": None if start is None else f"{start.usd:f}",
            "usd_now": None if start is None else f"{start.usd_now:f}",
            "expected_saving": None if start is None else start.saving,
            "days_of_prices": None if start is None else start.days,
            "backtest": None if start is None else start.backtest,
        }


def chosen_start(
    config_path: Path | None,
    request: JobRequest,
    by_text: str,
    *,
    cheapest: bool,
    copy_seconds: int = 0,
) -> ChosenStart:
    """Return the deadline, with the cheapest start before it.

    The job can't start before its data is copied. Raises QuoteError.
    """
    from toolkit.quote import cheapest_start, offers
    from toolkit.quote.errors import BadRequest

    if request.begin:
        raise BadRequest(
            f"the job has a start already: --begin={request.begin}",
            next_step="remove --begin, or submit without --by",
        )
    now = int(time.time())
    deadline = deadline_of(by_text, datetime.fromtimestamp(now).astimezone())
    config = load(config_path)
    job_request = offers.resolved(request, config)
    boot = int(config.slurm.resume_timeout)
    if copy_seconds or cheapest:
        cheapest_start.check_time(deadline - now, job_request.limit, boot, copy_seconds)
    if not cheapest:
        return ChosenStart(deadline, copy_seconds=copy_seconds)
    asked = _Asked(job_request, now, deadline, copy_seconds)
    return _cheapest(config, find_config_file(config_path), asked)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A job for which a start is chosen."""

    request: JobRequest
    now: int
    deadline: int
    copy_seconds: int


def _cheapest(config: ClusterConfig, config_file: Path, asked: _Asked) -> ChosenStart:
    """Ask the records and EC2 for prices, and choose."""
    now, deadline = asked.now, asked.deadline
    from toolkit.deploy.session import connected
    from toolkit.quote import cheapest_start, facts, offers

    with connected(config) as clients:
        since = now - 2 * cheapest_start.DAYS * cheapest_start.DAY
        history = facts.spot_prices(config, clients, since, now + 1)
    book = facts.book_with(config, config_file, history)
    job_offers = offers.offers(asked.request, offers.Market(config, book, now))
    offer = next((item for item in job_offers if item.is_spot), None)
    if offer is None:
        return ChosenStart(deadline, copy_seconds=asked.copy_seconds, buys_spot=False)
    market = cheapest_start.SpotMarket(history, offer.type, offer.zone, offer.nodes * offer.share)
    start = cheapest_start.choose(
        market,
        now=now,
        deadline=deadline,
        run_seconds=asked.request.limit,
        boot=float(config.slurm.resume_timeout),
        copy_seconds=asked.copy_seconds,
    )
    spans = history.spans(offer.type, offer.zone, now, now + 1)
    price = spans[0].price.usd_per_hour if spans else None
    return ChosenStart(deadline, offer, start, asked.copy_seconds, price_now=price, now=now)


def deadline_of(text: str, now: datetime) -> int:
    """Return the next such time, as epoch seconds.

    A time without a zone is this computer's, also where its clock changes until then.
    """
    try:
        if len(text) == len("08:00"):
            clock = datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007 - the zone is this computer's
            today = now.astimezone().date()
            days = (today, today + timedelta(days=1))
            moments = (datetime.combine(day, clock).astimezone() for day in days)
            moment = next(item for item in moments if item > now)
        else:
            moment = datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no time; write 08:00 or 2026-11-27T08:00", param_hint="--by"
        ) from error
    if moment <= now:
        raise click.BadParameter(f"{text} is over", param_hint="--by")
    return int(moment.timestamp())


def _clock(second: int) -> str:
    return datetime.fromtimestamp(second).astimezone().strftime("%a %H:%M %Z")
