"""Slurm's own list of instances in records, for a head that does not answer any more.

The head writes what Slurm knows at the end of each day, of the 30 days before. So a report of a
month reads a few objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.head.slurm_instance_days import FIRST_SECONDS
from slurmplugins.model import records
from slurmplugins.model.records import DAY
from slurmplugins.slurm import sacct
from toolkit.accounting import slurm_instances
from toolkit.accounting.records import DAMAGED, list_days, read_pages
from toolkit.accounting.set_aside import SetAside
from toolkit.accounting.slurm_instances import SlurmInstances

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.model.records import RecordKey
    from toolkit.accounting.records import Buckets

SPAN: Final = sacct.INSTANCE_LOOK_BACK


def read(buckets: Buckets, cluster: str, since: int, until: int) -> SlurmInstances:
    """Return the instances that began in a time, or 30 days before."""
    keys = list_days(
        buckets.s3, buckets.records, records.SLURM_INSTANCES, since, until + FIRST_SECONDS
    )
    chosen = wanted(keys, since, until)
    # They are few, and no cost is unknown without them.
    harmless = {key.key for key in chosen}
    pages, damaged = read_pages(buckets.s3, buckets.records, chosen, refused_before=harmless)
    content = SlurmInstances((), _harmless(damaged), reach=0)
    for page in sorted(pages, key=lambda item: (item.written, item.key)):
        if page.fields != sacct.INSTANCE_FIELDS:
            aside = (SetAside(page.key, DAMAGED),)
            parsed = SlurmInstances((), _harmless(aside), reach=0)
        else:
            parsed = slurm_instances.parse(page.content, cluster, page.key)
            parsed = SlurmInstances(parsed.instances, parsed.set_aside, reach=page.written)
        content = slurm_instances.merged(content, parsed)
    return content


def _harmless(items: Iterable[SetAside]) -> tuple[SetAside, ...]:
    """Return them as damage by which no cost is unknown."""
    return tuple(SetAside(item.name, item.reason, has_unknown_cost=False) for item in items)


def wanted(keys: Sequence[RecordKey], since: int, until: int) -> list[RecordKey]:
    """Return few objects that have all starts and late ends."""
    by_day: dict[int, list[RecordKey]] = {}
    for key in keys:
        by_day.setdefault(key.since, []).append(key)
    days = sorted(by_day)
    # The last one within a month has the ends. Else it is the first that looks back so far.
    last = max((day for day in days if day < until + SPAN - DAY), default=min(days, default=None))
    chosen: list[int] = []
    while last is not None:
        chosen.append(last)
        covered = last - SPAN
        earlier = [day for day in days if day < last and covered > since - SPAN]
        adjoining = [day for day in earlier if day >= covered - DAY]
        # After days without any, an object looks back as far as the one before it.
        last = min(adjoining, default=max(earlier, default=None))
    return [key for day in sorted(chosen) for key in by_day[day]]
