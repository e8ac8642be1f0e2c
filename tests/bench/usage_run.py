"""Contestant: `toolkit.usage` on a generated history, one step in a process of its own.

usage_run.py STEP FOLDER

Steps: `rebuild` reads the dump, prices, allocates, closes the days and reports. `month` reports a
closed month. `day` reads the last day's dump, closes it and reports it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import usage_history
from toolkit.accounting.allocation import Policy, Window
from toolkit.prices import Catalogue, PriceBook
from toolkit.usage import closed_days, database, engine
from toolkit.usage.import_dump import ImportOptions, import_dump
from toolkit.usage.store import Store

if TYPE_CHECKING:
    from toolkit.accounting.instances import Instance


def facts(instances: list[Instance]) -> engine.Facts:
    catalogue = Catalogue.bundled()
    until = max(item.ended or 0 for item in instances) + 86400
    book = PriceBook("us-east-1", catalogue, usage_history.spot_history(until))
    shapes = {item.instance_id: catalogue.shapes[item.instance_type] for item in instances}
    return engine.Facts(instances, shapes, book, until)


def close(store: Store, folder: Path, since: int, until: int) -> None:
    """Close the charges of the instances that ended in a time."""
    instances = [
        item
        for item in usage_history.read_instances(folder / "instances")
        if since <= (item.ended or 0) < until
    ]
    found = facts(instances)
    earliest = min(item.launched for item in instances) - 86400
    with store.changing() as temporary, database.opened(temporary) as opened:
        store.view(opened, store.manifest().files(earliest, found.now))
        engine.charge(opened, found, Window(earliest, found.now), Policy())
        closed_days.close(opened, store, instances, found.now, temporary)


def rebuild(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    began = time.process_time()
    result = import_dump(store, folder / "dump", ImportOptions())
    read = time.process_time() - began
    close(store, folder, 0, store.manifest().known_until // 86400 * 86400)
    total = closed_days.report(store, "2000-01-01", "2100-01-01", ("account", "user_name"))
    return {
        "attempts": result.record.attempts,
        "read_cpu": read,
        "rows": len(total),
        "micro": sum(row.micro for row in total),
    }


def month(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    days = sorted(store.manifest().charges)
    middle = days[len(days) // 2][:7]
    rows = closed_days.report(store, f"{middle}-01", f"{middle}-31", ("account", "user_name"))
    return {"rows": len(rows), "micro": sum(row.micro for row in rows)}


def day(folder: Path) -> dict[str, object]:
    store = Store(folder / "store")
    begin = store.manifest().known_until // 86400 * 86400
    result = import_dump(store, folder / "day", ImportOptions())
    close(store, folder, begin, 2**40)
    last = max(store.manifest().charges)
    rows = closed_days.report(store, last, last, ("account", "user_name"))
    return {"attempts": result.record.attempts, "rows": len(rows)}


def main() -> None:
    step = {"rebuild": rebuild, "month": month, "day": day}[sys.argv[1]]
    found = step(Path(sys.argv[2]))
    used = resource.getrusage(resource.RUSAGE_SELF)
    # The kernel's own maximum would count the parent, whose memory a fork has for a moment.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    found |= {"cpu": used.ru_utime + used.ru_stime, "peak_mb": peak}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
