"""Makers of what finance reads: a month of three accounts, its prices, its HTML."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from tests.unit.accounting.samples import G5, an_attempt, an_instance
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.report import Key
from toolkit.config.targets import Targets
from toolkit.finance import html_report
from toolkit.finance.indicators import values
from toolkit.finance.list_prices import ListPrices
from toolkit.finance.measures import measures
from toolkit.prices import Catalogue, PriceBook, SpotHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.report import Report
    from toolkit.finance.measures import Measures

HOUR, DAY = 3600, 86_400
NOVEMBER = 1_793_491_200  # 2026-11-01 00:00:00 UTC
DECEMBER = NOVEMBER + 30 * DAY
MONTH = Window(NOVEMBER, DECEMBER)
SPOT = Decimal("0.36")
LISTED = Decimal("1.006")  # g5.xlarge on demand in us-east-1


def a_price_book(since: int = NOVEMBER - 60 * DAY) -> PriceBook:
    """Return a book in which spot costs 0.36 an hour."""
    history = SpotHistory.from_points([("g5.xlarge", "us-east-1a", since, SPOT)])
    return PriceBook("us-east-1", Catalogue.bundled(), history)


def list_prices() -> ListPrices:
    return ListPrices(a_price_book())


def a_report(attempts, instances, *, window=MONTH, **more) -> Report:
    return build(
        cluster="demo",
        attempts=attempts,
        instances=instances,
        shapes={item.instance_id: G5 for item in instances},
        book=more.pop("book", a_price_book()),
        window=window,
        now=window.until,
        **more,
    )


def subject(report: Report, before: Measures | None = None, **targets) -> html_report.Subject:
    made = measures(report, list_prices())
    earlier = None if before is None else values(before)
    return html_report.Subject(report, made, Targets(**targets), earlier)


def html_of(
    report: Report, keys: Sequence[Key] = (Key.ACCOUNT, Key.USER), before: Measures | None = None
) -> str:
    return html_report.render(subject(report, before), keys)


def an_interrupted_job(second: int = NOVEMBER + DAY):
    """Return the attempts and instances of an interrupted job of ada's.

    It boots for ten minutes and works. EC2 interrupts it after two hours; half an hour before, it
    saved. Its second attempt boots for ten minutes again, works for an hour and completes; its node
    idles for ten minutes.
    """
    gone = second + 2 * HOUR
    attempts = [
        an_attempt(
            1,
            submitted=second,
            started=second + 600,
            ended=gone,
            state="NODE_FAIL",
            restarts=0,
            comments=f"toolkit:checkpoint={gone - 1800}",
        ),
        an_attempt(2, submitted=gone, started=gone + 600, ended=gone + 4200, restarts=1),
    ]
    instances = [
        an_instance("i-1", launched=second, ended=gone, end_cause="interruption"),
        an_instance("i-2", launched=gone, ended=gone + 4800),
    ]
    return attempts, instances


def a_month() -> Report:
    """Return a November of three accounts, with a failed job."""
    attempts, instances = an_interrupted_job()
    head = {"pool": "head", "node": "head", "instance_type": "m7i.large", "spot": False}
    instances.append(
        an_instance("i-head", **head, launched=NOVEMBER, ended=None, end_cause="", tag_price=None)
    )
    jobs = (("language", "grace", "COMPLETED"), ("speech", "bob", "FAILED"))
    for number, (account, user, state) in enumerate(jobs, start=3):
        first = NOVEMBER + number * 4 * DAY
        node = f"gpu-{number:03}"
        attempts.append(
            an_attempt(
                number, job_id=str(number), job=str(number), account=account, user=user,
                state=state, submitted=first, started=first + 600, ended=first + 5 * HOUR,
                nodes=(node,), restarts=0, exit_codes=(int(state == "FAILED"), 0),
            )
        )  # fmt: skip
        instances.append(
            an_instance(
                f"i-{number}", node=node, spot=number == 3, launched=first,
                ended=first + 5 * HOUR + 300,
            )
        )  # fmt: skip
    return a_report(attempts, instances)
