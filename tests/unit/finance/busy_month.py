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
    """Jobs on forty nodes, each node with one instance at a time."""

    def __init__(self, seed: int, window: Window, *, interruptions: float) -> None:
        self._random = random.Random(seed)  # noqa: S311  # a sample
        self._window = window
        self._interruptions = interruptions
        self._free_at = dict.fromkeys((f"gpu-{number:03}" for number in range(1, 41)), 0)
        self.attempts, self.instances = [], []

    def add_jobs(self, count: int) -> None:
        days = sorted(self._random.choices(range(30), [8] * 5 + [3] * 2 + [8] * 23, k=count))
        for number, day in enumerate(days, start=4000):
            account, users = self._random.choices(ACCOUNTS, SHARES)[0]
            second = self._window.since + day * DAY + self._random.randrange(8, 20) * HOUR
            names = {"account": account, "user": self._random.choice(users)}
            self._add_job(str(number), names, second)

    def _add_job(self, job: str, names: dict[str, str], submitted: int) -> None:
        is_spot, restarts = self._random.random() < 0.75, 0
        while is_spot and self._random.random() < self._interruptions:
            launched, name = self._node(submitted)
            ended = launched + self._random.randrange(70, 300) * MINUTE
            saved = self._random.random() < 0.9
            self._add_attempt(
                {**names, "job_id": job, "job": job, "nodes": (name,), "restarts": restarts},
                (submitted, launched + 5 * MINUTE, ended), state="NODE_FAIL", saved=saved,
            )  # fmt: skip
            self._add_instance(name, launched, ended, is_spot=True, end_cause="interruption")
            submitted, restarts = ended, restarts + 1
        launched, name = self._node(submitted)
        started, ended = launched + 5 * MINUTE, launched
        for part in range(self._random.choice((1, 1, 2, 3))):  # further jobs find the node up
            ended = started + self._random.randrange(20, 400) * MINUTE
            number = f"{job}{part or ''}"
            self._add_attempt(
                {**names, "job_id": number, "job": number, "nodes": (name,),
                 "restarts": 0 if part else restarts},
                (started - 30 if part else submitted, started, ended),
                state=self._random.choice(STATES), saved=True,
            )  # fmt: skip
            started = ended + 2 * MINUTE
        self._add_instance(name, launched, ended + 5 * MINUTE, is_spot=is_spot, end_cause="suspend")

    def _node(self, submitted: int) -> tuple[int, str]:
        """Return the launch and the node that is free first."""
        launched = submitted + self._random.randrange(1, 40) * MINUTE
        name = min(self._free_at, key=lambda node: self._free_at[node])
        return max(launched, self._free_at[name] + MINUTE), name

    def _add_attempt(self, names, times, *, state, saved) -> None:
        submitted, started, ended = times
        mark = f"toolkit:checkpoint={ended - self._random.randrange(1, 20) * MINUTE}"
        self.attempts.append(
            an_attempt(
                len(self.attempts) + 1, submitted=submitted, started=started, ended=ended,
                state=state, exit_codes=(int(state == "FAILED"), 0),
                comments=mark if saved else "", **names,
            )
        )  # fmt: skip

    def _add_instance(self, name, launched, ended, *, is_spot, end_cause) -> None:
        self._free_at[name] = ended
        self.instances.append(
            an_instance(
                f"i-{len(self.instances) + 1}", node=name, spot=is_spot, launched=launched,
                ended=ended, end_cause=end_cause,
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
