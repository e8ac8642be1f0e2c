"""Daily objects of spot prices, kept for longer than EC2 keeps them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.spot_history import KEPT_SECONDS
from slurmplugins.model import records
from slurmplugins.model.records import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.cloud.port import RecordStore
    from slurmplugins.cloud.spot_history import PricePoint

LATE_SECONDS: Final = 3600
"""Seconds after a day's end: EC2's list may lag behind."""
DAYS_AT_ONCE: Final = 10
"""Days of one run. The first runs of a cluster fetch what EC2 still has."""


@dataclass(frozen=True, slots=True)
class PriceDays:
    """Writes the spot prices of one cluster's types in one region."""

    cluster: str
    region: str
    types: Sequence[str]
    prices: Callable[[Sequence[str], int, int], Sequence[PricePoint]]
    """The changes of types between two times, in all zones. Raises CloudError."""
    store: RecordStore
    save: Callable[[int], None]

    def run(self, next_day: int | None, now: int) -> int:
        """Write the days that are over; return the next day.

        Raises CloudError, and may then be repeated.
        """
        oldest = (now - KEPT_SECONDS) // DAY * DAY + DAY
        day = max(oldest if next_day is None else next_day // DAY * DAY, oldest)
        for _ in range(DAYS_AT_ONCE if self.types else 0):
            if day + DAY + LATE_SECONDS > now:
                break
            self._write(day, now)
            day += DAY
            self.save(day)
        return day

    def _write(self, day: int, now: int) -> None:
        points = sorted(self.prices(self.types, day, day + DAY))
        window = day, day + DAY
        more = {"region": self.region, "types": sorted(self.types)}
        header = records.first_line("prices", self.cluster, window, now, **more)
        content = "".join(json.dumps(point, separators=(",", ":")) + "\n" for point in points)
        body = records.pack(header, content)
        self.store.add(records.prices_key(self.region, day, body), body)
