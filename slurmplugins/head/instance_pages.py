"""Pages of the instance ledger: many lives in one object, so that a report reads few.

reconcile remembers an instance for two hours after its end. If this program ran less than that ago,
reconcile's state has all that changed since. Else the ledger in the bucket has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model import records
from slurmplugins.reconciler import instance_ledger
from slurmplugins.system.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from slurmplugins.cloud.port import RecordStore
    from slurmplugins.cloud.stores import S3Store
    from slurmplugins.reconciler.instance_ledger import LedgerEntry

GAP: Final = int(instance_ledger.KEEP_SECONDS) - 1200
"""Seconds after which reconcile may have forgotten an end that no page has."""
ENTRIES_AT_ONCE: Final = 5000
READERS: Final = 8


@dataclass(frozen=True, slots=True)
class InstancePages:
    """Writes pages of one cluster's instances."""

    cluster: str
    ledger: S3Store
    store: RecordStore
    current_entries: Callable[[], Iterable[LedgerEntry]]
    """The entries that reconcile remembers."""

    def run(self, last: int | None, now: int) -> int:
        """Write what changed since the last page.

        Returns the time of the new page. Raises CloudError, and may then be repeated.
        """
        entries = {entry.instance_id: entry for entry in self.current_entries()}
        if last is None or not 0 <= now - last <= GAP:
            older = self._from_bucket(0 if last is None else min(last, now) - records.CLOCKS_DIFFER)
            entries = {**{entry.instance_id: entry for entry in older}, **entries}
        ended = sorted(
            (entry for entry in entries.values() if entry.ended_at is not None),
            key=lambda entry: entry.ended_at or 0,
        )
        while len(ended) > ENTRIES_AT_ONCE:
            chunk, ended = ended[:ENTRIES_AT_ONCE], ended[ENTRIES_AT_ONCE:]
            self._put(chunk, int(chunk[-1].ended_at or 0) + 1, now)
        living = [entry for entry in entries.values() if entry.ended_at is None]
        self._put([*ended, *living], now, now)
        return now

    def _from_bucket(self, moment: float) -> list[LedgerEntry]:
        keys = self.ledger.changed_since(instance_ledger.PREFIX, moment)
        values = WorkerPool(READERS).map(self.ledger.get, keys)
        entries = map(instance_ledger.from_json, values)
        return [entry for entry in entries if entry is not None]

    def _put(self, entries: Sequence[LedgerEntry], until: int, now: int) -> None:
        launches = [int(entry.launched_at) for entry in entries if entry.ended_at is not None]
        first = max(min([*launches, until]), 0)
        header = records.first_line("instances", self.cluster, (first, until), now)
        content = "".join(
            json.dumps(instance_ledger.to_json(entry), separators=(",", ":")) + "\n"
            for entry in entries
        )
        body = records.pack(header, content)
        self.store.add(records.instances_key(until, first, body), body)
