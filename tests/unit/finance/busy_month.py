"""A made-up month of hundreds of jobs, for tests of size and the docs' pictures.

It is the same in every run:

PYTHONPATH=. .venv/bin/python -m tests.unit.finance.busy_month report.html
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.accounting.samples import an_attempt, an_instance
from tests.unit.finance.samples import DAY, HOUR, MONTH, NOVEMBER, a_report, html_of, list_prices
from toolkit.accounting.allocation import Window
from toolkit.finance.measures import measures

if TYPE_CHECKING:
    from toolkit.accounting.report import Report

ACCOUNTS = (
    ("vision", ("ada", "mary")),
    ("language", ("grace", "edsger", "barbara")),
    ("speech", ("bob",)),
    ("robotics", ("hedy", "alan")),
)
SHARES = (8, 6, 3, 2)
STATES = ("COMPLETED",) * 16 + ("FAILED", "TIMEOUT", "CANCELLED")
MINUTE = 60


class Month:
    """Jobs on nodes of their own, one after the other."""

    def __init__(self, seed: int, window: Window, *, interruptions: float) -> None:
        self._random = random.Random(seed)  # noqa: S311  # a sample
        self._window = window
        self._interruptions = interruptions
        self._key = 0
        self.attempts, self.instances = [], []

    def add_jobs(self, count: int) -> None:
        for number in range(count):
            account, users = self._random.choices(ACCOUNTS, SHARES)[0]
            day = self._random.randrange(30)
            busy = day % 7 not in {0, 6}
            second = self._window.since + day * DAY + self._random.randrange(8, 20) * HOUR
            if busy or self._random.random() < 0.4:
                self._add_job(number, account, self._random.choice(users), second)

    def _add_job(self, number: int, account: str, user: str, second: int) -> None:
        names = {
            "job_id": str(4000 + number), "job": str(4000 + number), "account": account,
            "user": user, "nodes": (f"gpu-{number:03}",),
        }  # fmt: skip
        is_spot = self._random.random() < 0.75
        submitted, restarts = second, 0
        while is_spot and self._random.random() < self._interruptions:
            length = self._random.randrange(70, 300) * MINUTE
            self._add_attempt(
                names, submitted, length, state="NODE_FAIL", restarts=restarts, is_spot=True,
                end_cause="interruption", saved=self._random.random() < 0.9,
            )  # fmt: skip
            submitted, restarts = submitted + length, restarts + 1
        length = self._random.randrange(20, 600) * MINUTE
        state = self._random.choice(STATES)
        self._add_attempt(
            names, submitted, length, state=state, restarts=restarts, is_spot=is_spot,
            end_cause="suspend", saved=True,
        )  # fmt: skip

    def _add_attempt(
        self, names, submitted, length, *, state, restarts, is_spot, end_cause, saved
    ) -> None:
        self._key += 1
        launched = submitted + self._random.randrange(1, 40) * MINUTE
        started = launched + self._random.randrange(3, 9) * MINUTE
        ended = started + length
        mark = f"toolkit:checkpoint={ended - self._random.randrange(1, 20) * MINUTE}"
        self.attempts.append(
            an_attempt(
                self._key, submitted=submitted, started=started, ended=ended, state=state,
                restarts=restarts, exit_codes=(int(state == "FAILED"), 0),
                comments=mark if saved else "", **names,
            )
        )  # fmt: skip
        tail = 0 if end_cause == "interruption" else 5 * MINUTE
        self.instances.append(
            an_instance(
                f"i-{self._key}", node=names["nodes"][0], spot=is_spot, launched=launched,
                ended=ended + tail, end_cause=end_cause,
            )
        )  # fmt: skip

    def report(self) -> Report:
        head = an_instance(
            "i-head", node="head", pool="head", instance_type="m7i.large", spot=False,
            launched=self._window.since, ended=None, end_cause="", tag_price=None,
        )  # fmt: skip
        return a_report(self.attempts, [*self.instances, head], window=self._window)


def busy_month(
    jobs: int = 500, *, seed: int = 11, window: Window = MONTH, interruptions: float = 0.15
) -> Report:
    """Return the report of a month."""
    month = Month(seed, window, interruptions=interruptions)
    month.add_jobs(jobs)
    return month.report()


def page() -> str:
    """Return the HTML of a month, with the month before it."""
    october = busy_month(
        400, seed=10, window=Window(NOVEMBER - 31 * DAY, NOVEMBER), interruptions=0.3
    )
    return html_of(busy_month(), before=measures(october, list_prices()))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
