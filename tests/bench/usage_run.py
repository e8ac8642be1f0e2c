"""Contestant: `toolkit.usage` on a generated history, one step in a process of its own.

usage_run.py STEP FOLDER

`rebuild` reads a dump, prices, allocates and reports. The other steps run what the commands
`toolkit usage close` and `toolkit report` run on a cluster's records, but for the sign-in to AWS.
`close-month` reads all pages but the last day's and closes the days. `report-month` prints January.
`read-day` reads the last day, and closes nothing. `close-day` reads and closes it, `report-day`
prints it. `old` makes the store ten years older.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.accounting.allocation import Window
from toolkit.accounting.days import DAY
from toolkit.usage import database as databases
from toolkit.usage.cluster_store import ClusterStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolkit.commands.usage_closing import ClosingRun

OLD_DAYS = 3650
JANUARY = 31
"""The days of the first month of a history."""


class NoEc2:
    """An EC2 that has forgotten all instances, and has no prices."""

    def get_paginator(self, name: str) -> NoEc2:
        self.listing = name
        return self

    def paginate(self, **_: object) -> Iterator[dict[str, Any]]:
        of_instances = self.listing == "describe_instances"
        yield {"Reservations": []} if of_instances else {"SpotPriceHistory": []}


class NoHead:
    """A head that is stopped."""

    def run(self, argv: object, *, timeout: float = 60) -> str:
        from toolkit.errors import HeadNotReady

        raise HeadNotReady("the head node is stopped")


def rebuild(folder: Path) -> dict[str, object]:
    """Read a dump; report its instances' cost by account and user."""
    from tests.bench import usage_history
    from toolkit.prices import Catalogue, PriceBook
    from toolkit.usage.import_dump import ImportOptions, import_dump
    from toolkit.usage.instance_costs import instance_costs
    from toolkit.usage.instance_list import InstanceList
    from toolkit.usage.report import UsageKey
    from toolkit.usage.store import Store

    store = Store(folder / "store")
    began = time.process_time()
    result = import_dump(store, folder / "dump", ImportOptions())
    read = time.process_time() - began
    end = store.manifest().known_until // DAY * DAY
    instances = usage_history.read_instances(folder / "instances", usage_history.BEGIN, end)
    prices = usage_history.spot_history(end + DAY)
    book = PriceBook("us-east-1", Catalogue.bundled(), prices)
    report = instance_costs(
        store,
        InstanceList(tuple(instances), book),
        Window(usage_history.BEGIN, end),
        (UsageKey.ACCOUNT, UsageKey.USER),
    )
    return {
        "attempts": result.record.attempts,
        "instances": report.instances,
        "read_cpu": read,
        "rows": len(report.rows),
        "micro": report.total,
    }


def _closing(folder: Path, records: str) -> ClosingRun:
    """Return a run of the command `toolkit usage close`."""
    import toolkit.commands.usage_close  # its start-up is part of a run
    from tests.bench import usage_records
    from toolkit.accounting.collect import Sources
    from toolkit.commands.usage_closing import ClosingRun

    assert toolkit.commands.usage_close
    sources = Sources(
        cluster=usage_records.CLUSTER,
        region=usage_records.REGION,
        bucket="bench",
        records_bucket=usage_records.BUCKET,
        ec2=NoEc2(),  # type: ignore[arg-type]  # as the test's
        s3=usage_records.read(folder / records),  # type: ignore[arg-type]
        runner=NoHead(),
    )
    return ClosingRun(_store(folder), sources, usage_records.REGION, dry_run=False)


def _closed(folder: Path, records: str) -> dict[str, object]:
    """Read new pages and close days, as the command does."""
    run = _closing(folder, records)
    run.run(None, None, whole=False)
    return {"days": len(run.results)}


def _read(folder: Path, records: str) -> dict[str, object]:
    """Read new pages, and close no day."""
    _closing(folder, records).read(whole=False)
    return {"until": _store(folder).records().sacct_until}


def _store(folder: Path) -> ClusterStore:
    return ClusterStore(folder / "cluster")


def _printed(folder: Path, first: int, last: int) -> dict[str, object]:
    """Print the report of the closed days between two places."""
    from rich.console import Console

    import toolkit.commands.report
    from toolkit.accounting import terminal
    from toolkit.accounting.report import Key
    from toolkit.usage import closed_store
    from toolkit.usage.closed_report import split, summed_report

    assert toolkit.commands.report
    wall, cpu = time.monotonic(), time.process_time()
    store = _store(folder)
    closed = closed_store.read(store)
    days = sorted(closed.days)
    window = Window(days[first], days[last] + DAY)
    parts = split(closed, window, costs_always=False)
    text = io.StringIO()
    with databases.opened() as database:
        report = summed_report(database, store, closed, parts, now=window.until, cluster="bench")
        assert report is not None
        Console(file=text, width=120).print(terminal.render(report, [Key.ACCOUNT, Key.USER]))
        usd = report.net
    assert "exact sum" in text.getvalue()
    return {
        "days": len(days),
        "of": len(parts.days),
        "micro": usd,
        "print_wall": time.monotonic() - wall,
        "print_cpu": time.process_time() - cpu,
    }


def old(folder: Path) -> dict[str, object]:
    """Add ten years of closed days before the store's first one.

    They have its files. A day before it that has records of its own keeps them.
    """
    from toolkit.usage import closed_store
    from toolkit.usage.database import day as name_of

    store = _store(folder)
    closed, records = closed_store.read(store), store.records()
    first = min(closed.days)
    item, name = closed.days[first], name_of(first)
    days = dict(closed.days)
    tables = {key: dict(getattr(records, key)) for key in ("attempts", "instances", "prices")}
    types = dict(records.price_types)
    for second in range(first - OLD_DAYS * DAY, first, DAY):
        other = name_of(second)

        def copied(file: str, other: str = other) -> str:
            target = file.replace(f"day={name}", f"day={other}")
            (store.folder / target).parent.mkdir(parents=True, exist_ok=True)
            os.link(store.folder / file, store.folder / target)
            return target

        charges = tuple(copied(file) for file in item.charges)
        days[second] = replace(item, charges=charges, details=copied(item.details))
        for table in tables.values():
            if name in table and other not in table:
                known = table[name]
                times = {
                    key: None if (value := getattr(known, key)) is None else value - first + second
                    for key in ("first_start", "last_end")
                }
                table[other] = replace(known, files=tuple(map(copied, known.files)), **times)
        types[f"us-east-1/{other}"] = next(iter(records.price_types.values()))
    closed_store.commit(store, replace(closed, days=days), [])
    store.commit_records(replace(records, **tables, price_types=types))
    return {"days": len(days)}


STEPS: dict[str, Callable[[Path], dict[str, object]]] = {
    "rebuild": rebuild,
    "close-month": lambda folder: _closed(folder, "records.pickle"),
    "report-month": lambda folder: _printed(folder, 0, JANUARY - 1),
    "read-day": lambda folder: _read(folder, "all-records.pickle"),
    "close-day": lambda folder: _closed(folder, "all-records.pickle"),
    "report-day": lambda folder: _printed(folder, -1, -1),
    "old": old,
}


def main() -> None:
    began = time.process_time()
    found = STEPS[sys.argv[1]](Path(sys.argv[2]))
    step = time.process_time() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    # The kernel's own maximum would count the parent, whose memory a fork has for a moment.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    found |= {"cpu": used.ru_utime + used.ru_stime, "step_cpu": step, "peak_mb": peak}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
