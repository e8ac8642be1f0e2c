"""A cluster's history for the benchmark of usage: generated, and the same each time.

Nodes are launched, run one to nine jobs, and are idle in between. Some jobs have half a node, some
have two nodes. Spot prices change four times a day.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from toolkit.accounting.instances import Instance
from toolkit.prices import SpotHistory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

BEGIN = 1_735_689_600  # 2025-01-01
NODES = 200
TYPES = ("g5.xlarge", "p5.48xlarge")
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
HALF = "billing=2,cpu=2,gres/gpu=0,mem=8000M,node=1"
_TAG_PRICE = Decimal("0.4454")
FIELDS = (
    "DBIndex", "JobIDRaw", "JobID", "Restarts", "Cluster", "Partition", "Account", "User", "QOS",
    "Submit", "Start", "End", "State", "ExitCode", "DerivedExitCode", "NNodes", "AllocTRES",
    "NodeList", "AdminComment", "Comment", "JobName",
)  # fmt: skip


@dataclass(frozen=True)
class Files:
    """The generated files of one history."""

    dump: Path  # sacct's text, all but the last day's
    day: Path  # the last day's
    peer: Path  # the same rows for slurm2sql
    instances: Path  # a folder: a file for each month in which instances ended


class _Node:
    """A node, or two that are always launched together."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.names = (f"gpu-{number:03}",)
        if number % 10 == 0:
            self.names = (f"gpu-{number:03}", f"gpu-{number + 500:03}")
        self.type = TYPES[number % 20 == 1]
        self.zone = ZONES[number % 3]
        self.rng = rng
        self.now = BEGIN + rng.randrange(3600)

    def __lt__(self, other: _Node) -> bool:
        return self.names < other.names

    def life(self) -> tuple[list[tuple[int, int, int, str]], int, int]:
        """Return an instance's jobs, its launch and its end.

        A job is its submission, start, end and share."""
        rng = self.rng
        launched = self.now
        submitted, at = launched - rng.randrange(5, 60), launched + rng.randrange(90, 240)
        jobs = []
        for _ in range(rng.randrange(1, 10)):
            length = rng.randrange(30, 7200)
            jobs.append((submitted, at, at + length, "whole"))
            if rng.random() < 0.1 and len(self.names) == 1:
                jobs[-1] = (submitted, at, at + length, "half")
                jobs.append((submitted, at + 5, at + 5 + rng.randrange(10, length + 20), "half"))
            at = max(job[2] for job in jobs) + rng.randrange(0, 200)
            submitted = at - rng.randrange(1, 100)
        ended = max(job[2] for job in jobs) + rng.randrange(60, 600)
        self.now = ended + rng.randrange(30, 3600)
        return jobs, launched, ended


class _Writer:
    """The writer of a history.

    It writes in order of submission. It keeps only rows that an earlier one may still come before.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.dump = files.dump.open("w")
        self.dump.write("|".join(FIELDS) + "\n")
        self.rows: list[tuple[int, int, list[str]]] = []
        self.count = 0
        self.days: dict[int, int] = {}  # the place in the file at which a day begins
        self.months: dict[str, TextIO] = {}
        files.instances.mkdir()

    def add(self, row: list[str]) -> None:
        heappush(self.rows, (int(row[9]), self.count, row))
        self.count += 1

    def add_instance(self, node: _Node, name: str, launched: int, ended: int, number: int) -> None:
        month = month_of(ended)
        if month not in self.months:
            self.months[month] = (self.files.instances / month).open("w")
        self.months[month].write(
            f"i-{number:017x} {name} {node.type} {node.zone} {launched} {ended}\n"
        )

    def write(self, until: int) -> None:
        """Write the rows that were submitted before a second."""
        while self.rows and self.rows[0][0] < until:
            submitted, _, row = heappop(self.rows)
            if submitted // 86400 not in self.days:
                self.days[submitted // 86400] = self.dump.tell()
            self.dump.write("|".join(row) + "\n")

    def close(self, last_day: int) -> None:
        """Move the last day's rows into a file of their own."""
        for file in (self.dump, *self.months.values()):
            file.close()
        with self.files.dump.open("r+b") as dump, self.files.day.open("wb") as day:
            dump.seek(self.days[last_day])
            day.write(("|".join(FIELDS) + "\n").encode() + dump.read())
            dump.truncate(self.days[last_day])


def generate(
    folder: Path, attempts: int, *, nodes: int = NODES, days: int | None = None, seed: int = 17
) -> Files:
    """Write a history of so many attempts, or of so many days.

    Its last day is whole.
    """
    files = Files(*(folder / name for name in ("dump", "day", "peer", "instances")))
    rng = random.Random(seed)  # noqa: S311 - the same each time
    waiting = [(node.now, node) for node in (_Node(number, rng) for number in range(1, nodes + 1))]
    heapify(waiting)
    writer, instances = _Writer(files), 0
    end = BEGIN if days is None else BEGIN + days * 86400
    while writer.count < attempts if days is None else waiting[0][0] < end:
        now, node = heappop(waiting)
        writer.write(now - 60)  # no later life has a job that was submitted before
        jobs, launched, ended = node.life()
        for name in node.names:
            instances += 1
            writer.add_instance(node, name, launched, ended, instances)
        for job in jobs:
            writer.add(_row(writer.count, job, node, rng))
        heappush(waiting, (node.now, node))
    end = (waiting[0][0] - 60) // 86400 * 86400 if days is None else end
    writer.write(end)
    writer.close(end // 86400 - 1)
    return files


def month_of(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m}"


def _row(number: int, job: tuple[int, int, int, str], node: _Node, rng: random.Random) -> list[str]:
    submitted, started, ended, share = job
    state = rng.choices(("COMPLETED", "FAILED", "CANCELLED by 1001", "NODE_FAIL"), (88, 6, 4, 2))[0]
    user = rng.randrange(60)
    count = len(node.names)
    tres = f"billing={4 * count},cpu={4 * count},gres/gpu={count},mem={15000 * count}M,node={count}"
    nodes = f"gpu-[{','.join(name[4:] for name in node.names)}]" if count > 1 else node.names[0]
    mark = f"toolkit:checkpoint={started + (ended - started) // 2}" if number % 7 == 0 else ""
    return [
        str(2**40 + number), str(number + 1), str(number + 1), "0", "bench", "spot",
        f"account{user % 12}", f"user{user}", "normal", str(submitted), str(started), str(ended),
        state, "0:0", "0:0", str(count), HALF if share == "half" else tres, nodes, mark, "",
        f"train-{number % 1000}",
    ]  # fmt: skip


def write_for_peer(files: Files, columns: list[str]) -> None:
    """Write the same rows as slurm2sql's call of sacct prints them."""
    with files.peer.open("w") as peer:
        peer.write(";|;".join(columns) + "\n")
        for path in (files.dump, files.day):
            with path.open() as dump:
                next(dump)
                for line in dump:
                    values = dict(zip(FIELDS, line.rstrip("\n").split("|"), strict=True))
                    peer.write(";|;".join(_peer_row(values, columns)) + "\n")


def _peer_row(values: dict[str, str], columns: list[str]) -> list[str]:
    start, end = int(values["Start"]), int(values["End"])
    minutes, seconds = divmod(end - start, 60)
    cpus = values["AllocTRES"].partition("cpu=")[2].partition(",")[0]
    values |= {name: _iso(int(values[name])) for name in ("Submit", "Start", "End")}
    values |= {
        "Elapsed": f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}",
        "ReqTRES": values["AllocTRES"],
        "NCPUS": cpus,
        "AllocCPUS": cpus,
        "AllocNodes": values["NNodes"],
    }
    return [values.get(name, "") for name in columns]


def _iso(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def read_instances(folder: Path, since: int, until: int) -> Iterator[Instance]:
    """Yield the instances that ended in a time."""
    months = [path for path in sorted(folder.iterdir()) if path.name >= month_of(since)]
    for path in months:
        if path.name > month_of(until):
            break
        for line in path.read_text().splitlines():
            instance_id, node, kind, zone, launched, ended = line.split()
            if since <= int(ended) < until:
                yield Instance(
                    instance_id=instance_id,
                    node=node,
                    pool="gpu",
                    instance_type=kind,
                    zone=zone,
                    spot=True,
                    launched=int(launched),
                    ended=int(ended),
                    end_cause="suspend",
                    tag_price=_TAG_PRICE,
                    running=int(launched) + 12,
                )


def spot_history(until: int) -> SpotHistory:
    """Return prices of each type and zone, which change every six hours."""
    rng = random.Random(4)  # noqa: S311 - the same each time
    return SpotHistory.from_points(
        (kind, zone, second, Decimal(rng.randrange(3000, 5000)).scaleb(-4))
        for kind in TYPES
        for zone in ZONES
        for second in range(BEGIN - 86400, until, 21600)
    )
