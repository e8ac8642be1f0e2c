"""Jobs of the month of three accounts, each with its quote, and what the report charges for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.slurm.waiting import until
from toolkit.output import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.slurm.conftest import Cluster

WORK = ("useful work", "lost work")
AROUND = ("boot", "wait for nodes", "idle gap", "idle tail", "minimum charge", "failed launch")
HEADERS = (
    "job", "account", "quoted on", "bought", "ran", "USD quoted", "USD work", "boot+idle quoted",
    "boot+idle charged", "as before",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A batch script with the options of its user."""

    name: str
    user: str
    options: tuple[str, ...]
    body: str

    @property
    def text(self) -> str:
        """Return the script."""
        return f"#!/bin/bash\n#SBATCH --job-name={self.name}\n{self.body}\n"


@dataclass(frozen=True)
class Submitted:
    """A job in Slurm, and the quote of the second before."""

    job: Job
    number: str
    quote: dict[str, Any]
    line: str = ""
    """What sbatch printed on standard error."""


@dataclass(frozen=True)
class Charged:
    """A job's charges in the report, in dollars."""

    work: Decimal
    around: Decimal
    bought: tuple[str, ...]
    accounts: tuple[str, ...]


def sleeps(name: str, user: str, seconds: int, *options: str) -> Job:
    """Return a job that takes its time."""
    return Job(name, user, options, f"sleep {seconds}")


def submit(cluster: Cluster, job: Job, folder: Path) -> Submitted:
    """Ask for a quote, then submit the job with plain sbatch."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{job.name}.sbatch"
    script.write_text(job.text)
    quote = quote_of(cluster, job.options, script)
    home = f"/shared/home/{job.user}"
    path = f"{home}/{job.name}.sbatch"
    as_user = ("runuser", "-u", job.user, "--")
    cluster.run(*as_user, "sh", "-c", 'printf %s "$2" > "$1"', "sh", path, job.text)
    words = ("sbatch", "--parsable", f"--chdir={home}", *job.options, path)
    done = cluster.head.output([*as_user, *words], timeout=120)
    return Submitted(job, done.stdout.strip(), quote, done.stderr.strip())


def quote_of(cluster: Cluster, options: Sequence[str], script: Path) -> dict[str, Any]:
    """Return the quote of a script with sbatch's options."""
    answer = cluster.toolkit("quote", "--json", *options, str(script))
    quote: dict[str, Any] = json.loads(answer.stdout)
    return quote


def all_ended(cluster: Cluster, jobs: Iterable[Submitted]) -> None:
    """Wait until Slurm has none of the jobs any more."""
    numbers = {item.number for item in jobs}

    def is_over() -> bool:
        queued = cluster.run("squeue", "--noheader", "--array", "--format=%F %A").split()
        return numbers.isdisjoint(queued)

    until("the end of the jobs", is_over)


def attempts_of(report: dict[str, Any], number: str) -> list[dict[str, Any]]:
    """Return the report's attempts of a job, with all its tasks."""
    return [item for item in report["attempts"] if item["job_text"].partition("_")[0] == number]


def charged(report: dict[str, Any], number: str) -> Charged:
    """Return what the report charges for a job."""
    numbers = {item["job"] for item in attempts_of(report, number)}
    rows = [row for row in report["charges"] if row["job"] in numbers]

    def total(components: Iterable[str]) -> Decimal:
        own = [Decimal(row["usd"]) for row in rows if row["component"] in components]
        return sum(own, Decimal(0))

    bought = sorted({f"{row['type']} {row['lifecycle']}" for row in rows})
    accounts = sorted({row["account"] for row in rows})
    return Charged(total(WORK), total(AROUND), tuple(bought), tuple(accounts))


def seconds_run(report: dict[str, Any], number: str) -> int:
    """Return the seconds of a job's attempts, with all its tasks."""

    def seconds(item: dict[str, Any]) -> float:
        ends = [datetime.fromisoformat(item[key]) for key in ("started", "ended")]
        return (ends[1] - ends[0]).total_seconds()

    own = [item for item in attempts_of(report, number) if item["started"]]
    return round(sum(map(seconds, own)))


@dataclass(frozen=True)
class Compared:
    """A quote held against the cost of its job."""

    submitted: Submitted
    cost: Charged
    seconds: int

    @property
    def offer(self) -> dict[str, Any]:
        """Return the offering that the quote said is tried first."""
        first: dict[str, Any] = self.submitted.quote["offers"][0]
        return first

    @property
    def quoted(self) -> Decimal:
        """Return the quoted price of the time that the job ran."""
        return Decimal(self.offer["usd_per_hour"]) * self.seconds / 3600

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        usual = self.offer["usd_usual"]
        return (
            self.submitted.job.name,
            ",".join(self.cost.accounts),
            f"{self.offer['type']} {self.offer['lifecycle']}",
            ", ".join(self.cost.bought) or "nothing",
            f"{self.seconds} s",
            f"{self.quoted:.4f}",
            f"{self.cost.work:.4f}",
            f"{Decimal(self.offer['usd_boot_and_tail']):.4f}",
            f"{self.cost.around:.4f}",
            "-" if usual is None else f"{Decimal(usual):.4f}",
        )


def compare(report: dict[str, Any], jobs: Iterable[Submitted]) -> list[Compared]:
    """Hold each quote against what its job cost."""
    return [
        Compared(item, charged(report, item.number), seconds_run(report, item.number))
        for item in jobs
    ]


def as_table(rows: Iterable[Compared]) -> str:
    """Return quotes and costs as a table."""
    return table(HEADERS, [row.cells() for row in rows])
