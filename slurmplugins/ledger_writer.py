"""Writes the lives of machines to the cluster's bucket, and never keeps a pass waiting for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins import ledger
from slurmplugins.crew import Crew
from slurmplugins.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import ObjectStore
    from slurmplugins.ledger import LedgerEntry
    from slurmplugins.log import Log

WRITERS: Final = 10
"""Entries written at once: as many connections as boto3 keeps open."""

SECONDS: Final = 30.0
"""How long a pass writes entries. Slurm's jobs wait for the next pass, and entries for nobody."""


class LedgerWriter:
    def __init__(self, store: ObjectStore, clock: Clock, log: Log) -> None:
        self._store = store
        self._clock = clock
        self._log = log

    def write(
        self, before: Mapping[str, LedgerEntry], entries: Mapping[str, LedgerEntry]
    ) -> dict[str, LedgerEntry]:
        """Write what changed; returns what is in the bucket now. What could not be written, or not
        in time, or after a first sign that the bucket does not answer, is left to the next pass.
        """
        changed = [key for key, entry in entries.items() if before.get(key) != entry]
        until = self._clock.monotonic() + SECONDS
        silent: list[CloudError] = []

        def write(key: str) -> LedgerEntry | None:
            if silent or self._clock.monotonic() > until:
                return None
            try:
                return self._put(entries[key], new=key not in before)
            except CloudError as error:
                self._log.warning("ledger", instance=key, message=error.message)
                if error.retryable:
                    silent.append(error)
                return None

        results = Crew(WRITERS).map(write, changed)
        done = {key: item for key, item in zip(changed, results, strict=True) if item is not None}
        return {**before, **done}

    def _put(self, entry: LedgerEntry, *, new: bool) -> LedgerEntry:
        key = ledger.key(entry.instance_id)
        if new:
            if self._store.create(key, ledger.to_json(entry)):
                return entry
            # Written by a pass that died before it could remember, or whose memory is lost.
            entry = ledger.merge(entry, ledger.from_json(self._store.get(key)))
        self._store.put(key, ledger.to_json(entry))
        return entry
