"""Contestant: `toolkit.usage` on a generated history, one step in a process of its own.

usage_run.py STEP FOLDER

Steps: `rebuild` reads the dump, prices, allocates, closes the days and reports. `month` reports
each closed month, and tells what the dearest takes. `day` reads the last day's dump, closes it
and reports it. `last-day` reports the last day alone.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import usage_history
from toolkit.accounting.allocation import Policy, Window
from toolkit.prices import Catalogue, PriceBook
from toolkit.usage import closed_days, database, engine
from toolkit.usage.import_dump import ImportOptions, import_dump
from toolkit.usage.rates import Rates
from toolkit.usage.report import UsageKey, usage_report
from toolkit.usage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86400
DAYS_A_CLOSING = 92
KEYS = ("account", "user_name")


def facts(until: int) -> engine.Facts:
    """Return the facts of a cluster without instances."""
    catalogue = Catalogue.bundled()
    book = PriceBook("us-east-1", catalogue, usage_history.spot_history(until))
    return engine.Facts(
        (),
        {},
        book,
        until,
    )


def close(store: Store, folder: Path, since: int, until: int, known: engine.Facts) -> None:
    """Close the charges of the instances that ended in a time."""
    instances = list(usage_history.read_instances(folder / "instances", since, until))
    if not instances:
        return
    shapes = known.book.catalogue.shapes
    found = replace(
        known,
        instances=instances,
        shapes={item.instance_id: shapes[item.instance_type] for item in instances},
        now=max(item.ended or 0 for item in instances) + DAY,
    )
    earliest = min(item.launched for item in instances) - DAY
    with store.changing() as temporary, database.opened(temporary) as opened:
        store.view(opened, store.manifest().files(earliest, found.now))
        engine.charge(opened, found, Window(earliest, found.now), Policy())
        closed_days.close(opened, store, instances, found.now, temporary)


def rebuild(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    began = time.process_time()
    result = import_dump(store, folder / "dump", ImportOptions())
    read = time.process_time() - began
    end = store.manifest().known_until // DAY * DAY
    known = facts(end + DAY)
    for since in range(usage_history.BEGIN, end, DAYS_A_CLOSING * DAY):
        close(store, folder, since, min(since + DAYS_A_CLOSING * DAY, end), known)
    total = closed_days.report(store, "2000-01-01", "2100-01-01", KEYS)
    return {
        "attempts": result.record.attempts,
        "read_cpu": read,
        "rows": len(total),
        "micro": sum(row.micro for row in total),
    }


def month(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    months = sorted({day[:7] for day in store.manifest().charges})
    costs = []
    for name in months:
        wall, cpu = time.monotonic(), time.process_time()
        closed_days.report(store, f"{name}-01", f"{name}-31", KEYS)
        costs.append((time.process_time() - cpu, time.monotonic() - wall))
    return {"months": len(months), "dearest_cpu": max(costs)[0], "dearest_wall": max(costs)[1]}


def day(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    begin = store.manifest().known_until // DAY * DAY
    result = import_dump(store, folder / "day", ImportOptions())
    close(store, folder, begin, begin + 2 * DAY, facts(begin + 3 * DAY))
    last = max(store.manifest().charges)
    rows = closed_days.report(store, last, last, KEYS)
    return {"attempts": result.record.attempts, "rows": len(rows)}


def last_day(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    days = sorted(store.manifest().charges)
    rows = closed_days.report(store, days[-2], days[-2], KEYS)
    end = store.manifest().known_until // DAY * DAY
    usage = usage_report(store, end - DAY, end, (UsageKey.ACCOUNT, UsageKey.USER), Rates())
    return {"days": len(days), "rows": len(rows), "attempts": usage.total.attempts}


STEPS: dict[str, Callable[[Path], dict[str, object]]] = {
    "rebuild": rebuild,
    "month": month,
    "day": day,
    "last-day": last_day,
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
