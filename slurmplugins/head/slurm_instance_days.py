"""Days of Slurm's own list of instances, as `sacctmgr show instance` prints it.

A day's object has what Slurm knows when the day is over: each instance that began in it, or in the
30 days before. So the end of a life is in a later day's. sacctmgr selects by the start alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model import records
from slurmplugins.model.records import DAY
from slurmplugins.slurm import sacct

if TYPE_CHECKING:
    from slurmplugins.cloud.port import RecordStore
    from slurmplugins.slurm.accounting import Accounting

FIRST_SECONDS: Final = 366 * DAY
"""Seconds for which the first object looks back."""


@dataclass(frozen=True, slots=True)
class SlurmInstanceDays:
    """Writes one cluster's instances as Slurm knows them."""

    cluster: str
    slurm_cluster: str  # its name in Slurm's accounting
    accounting: Accounting
    store: RecordStore

    def run(self, next_day: int | None, now: int) -> int:
        """Write the last day that is over; return the next day.

        Days on which the head was away are in the object of the last one. Raises CloudError or
        SlurmError, and may then be repeated.
        """
        today = now // DAY * DAY
        if next_day == today:
            return today
        since = today - DAY
        if next_day is None:
            first = today - FIRST_SECONDS
        else:
            first = min(next_day, since) - sacct.INSTANCE_LOOK_BACK
        text = self.accounting.instances(self.slurm_cluster, first)
        more = {"fields": list(sacct.INSTANCE_FIELDS), "first": first}
        header = records.first_line("slurm-instances", self.cluster, (since, today), now, **more)
        body = records.pack(header, text)
        self.store.add(records.slurm_instances_key(since, body), body)
        return today
