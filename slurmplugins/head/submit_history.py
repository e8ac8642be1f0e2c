"""The history that sbatch's line tells: waits and interruptions. Pure but for its own file.

`slurm-prices` adds what is new every ten minutes, so that no pass reads a month. Losing the file
only begins the history anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.instance import EndCause, Lifecycle
from slurmplugins.model.json_input import finite, loads
from slurmplugins.model.records import DAY
from slurmplugins.slurm.sacct import second
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slurmplugins.reconciler.instance_ledger import LedgerEntry

FILE: Final = "submit-history.json"
KEPT_DAYS: Final = 30
MOST_WAITS: Final = 500
"""Jobs of a partition, the last ones: a median needs no more."""
LATE: Final = 300
"""Seconds after which slurmdbd and reconcile surely know of an end."""
RAN: Final = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})
"""States that prove a run. Others may have ended because they got no instances."""
TAKEN: Final = frozenset({EndCause.INTERRUPTION, EndCause.NOTICE})
NEVER_UP: Final = frozenset({EndCause.RESUME_FAILED, EndCause.BOOT_FAILED, EndCause.LAUNCH_FAILED})

Span = tuple[int, int]
"""The first second, and the first one after it."""
Wait = tuple[int, int]
"""When a job ended, and the seconds from its submission to its start."""
SpotDay = tuple[int, int, int]
"""A day since the epoch, the seconds of its spot instances, and how many EC2 took."""


@dataclass(frozen=True, slots=True)
class SubmitHistory:
    """Waits by partition, and spot instances by type."""

    until: int = 0
    """What ended before this second is in it."""
    waits: Mapping[str, tuple[Wait, ...]] = field(default_factory=dict)
    spot: Mapping[str, tuple[SpotDay, ...]] = field(default_factory=dict)

    def wait(self, partition: str) -> dict[str, Any] | None:
        """Return the median wait, and of how many jobs; None without any."""
        waits = [seconds for _, seconds in self.waits.get(partition, ())]
        return {"seconds": median(waits), "count": len(waits)} if waits else None

    def interruptions(self, instance_type: str) -> dict[str, Any] | None:
        """Return the interruptions, and in how many instance-hours.

        None where no spot instance of the type ran.
        """
        days = self.spot.get(instance_type, ())
        seconds = sum(item[1] for item in days)
        if not seconds:
            return None
        return {"count": sum(item[2] for item in days), "hours": round(seconds / 3600, 1)}

    @classmethod
    def load(cls, folder: Path) -> SubmitHistory:
        """Read the history; an empty one without a readable file."""
        try:
            value = loads((folder / FILE).read_bytes())
            return cls(
                int(finite(value["until"])),
                {str(name): tuple(map(_wait, items)) for name, items in value["waits"].items()},
                {str(name): tuple(map(_spot_day, items)) for name, items in value["spot"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def save(self, folder: Path) -> None:
        """Write the history. Raises OSError."""
        value = {"until": self.until, "waits": self.waits, "spot": self.spot}
        write_atomically(folder / FILE, json.dumps(value).encode(), mode=0o640)


NO_HISTORY: Final = SubmitHistory()


def window(history: SubmitHistory, now: float) -> Span:
    """Return the time that a pass adds.

    It begins where the last pass ended, and is a day at most. A place more than a day ahead was
    written by a wrong clock: the last day is added then.
    """
    until = int(now) - LATE
    place = history.until if history.until <= until + DAY else 0
    return min(max(place, until - DAY), until), until


def updated(
    history: SubmitHistory,
    rows: Iterable[Mapping[str, str]],
    entries: Iterable[LedgerEntry],
    span: Span,
) -> SubmitHistory:
    """Return the history with this time, and without what is too old."""
    until = span[1]
    return SubmitHistory(
        until, _with_waits(history.waits, rows, span), _with_spot(history.spot, entries, span)
    )


def _with_waits(
    known: Mapping[str, tuple[Wait, ...]], rows: Iterable[Mapping[str, str]], span: Span
) -> dict[str, tuple[Wait, ...]]:
    since, until = span
    waits = {name: list(items) for name, items in known.items()}
    for row in rows:
        wait = _wait_of(row)
        if wait is not None and since <= wait[0] < until and row["Partition"]:
            waits.setdefault(row["Partition"], []).append(wait)
    oldest = until - KEPT_DAYS * DAY
    kept = {
        name: tuple(sorted(item for item in items if item[0] >= oldest)[-MOST_WAITS:])
        for name, items in waits.items()
    }
    return {name: items for name, items in kept.items() if items}


def _wait_of(row: Mapping[str, str]) -> Wait | None:
    """Return the wait of a first attempt that ran and ended."""
    submit, start, end = (second(row[name]) for name in ("Submit", "Start", "End"))
    if submit is None or start is None or end is None or not submit <= start < end:
        return None
    if row["State"] not in RAN or row.get("Restarts", "0") not in {"", "0"}:
        return None
    return end, start - submit


def _with_spot(
    known: Mapping[str, tuple[SpotDay, ...]], entries: Iterable[LedgerEntry], span: Span
) -> dict[str, tuple[SpotDay, ...]]:
    since, until = span
    today = until // DAY
    spot = {name: {day: (seconds, taken) for day, seconds, taken in items}
            for name, items in known.items()}  # fmt: skip
    for entry in entries:
        if entry.lifecycle != Lifecycle.SPOT or entry.end_cause in NEVER_UP:
            continue
        ended = until if entry.ended_at is None else entry.ended_at
        seconds = int(min(ended, until) - max(entry.launched_at, since))
        taken = int(entry.end_cause in TAKEN and since <= ended < until)
        if seconds > 0 or taken:
            days = spot.setdefault(entry.type, {})
            before = days.get(today, (0, 0))
            days[today] = (before[0] + max(seconds, 0), before[1] + taken)
    kept = {
        name: tuple((day, *days[day]) for day in sorted(days) if day > today - KEPT_DAYS)
        for name, days in spot.items()
    }
    return {name: items for name, items in kept.items() if items}


def _wait(value: Any) -> Wait:
    """Read a wait. Raises TypeError or ValueError for anything else."""
    end, seconds = map(finite, value)
    return int(end), int(seconds)


def _spot_day(value: Any) -> SpotDay:
    day, seconds, taken = map(finite, value)
    return int(day), int(seconds), int(taken)
