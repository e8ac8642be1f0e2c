"""Choices that people recorded before their jobs ran: the savings ledger compares with them.

A job is found by its number and its times. Names of jobs may be left out of a report.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from toolkit.quote import planned_starts, right_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.quote.planned_starts import PlannedStart
    from toolkit.quote.right_sizes import RightSize

CLOCK_SKEW: Final = 300
"""Seconds by which the clock of the person's computer may be ahead of slurmctld's."""


@dataclass(frozen=True)  # without slots: what is looked up is kept
class RecordedChoices:
    """Keep what a record of predictions tells of a report's jobs."""

    later_starts: tuple[PlannedStart, ...] = ()
    right_sizes: tuple[RightSize, ...] = ()

    @cached_property
    def _starts(self) -> Mapping[str, Sequence[PlannedStart]]:
        starts: dict[str, list[PlannedStart]] = defaultdict(list)
        for start in self.later_starts:
            starts[start.job].append(start)
        return starts

    def start_of(self, attempt: Attempt) -> PlannedStart | None:
        """Return the chosen start of an attempt that began then or later."""
        if attempt.submitted is None or attempt.started is None:
            return None
        fitting = [
            item
            for item in self._starts.get(_number(attempt), ())
            if item.at - CLOCK_SKEW <= attempt.submitted
            and item.begin <= attempt.started < item.deadline
        ]
        return max(fitting, key=lambda item: item.at, default=None)

    @cached_property
    def _sizes(self) -> Mapping[str, RightSize]:
        return {size.job: size for size in self.right_sizes}

    def size_of(self, attempt: Attempt) -> RightSize | None:
        """Return the recommended size of an attempt's run."""
        size = self._sizes.get(attempt.job_id)
        if size is None or (attempt.ended is not None and attempt.ended < size.started):
            return None
        return size

    def of(self, attempts: Mapping[int, Attempt]) -> RecordedChoices:
        """Return those of these attempts alone."""
        starts = {self.start_of(attempt) for attempt in attempts.values()}
        sizes = {self.size_of(attempt) for attempt in attempts.values()}
        return RecordedChoices(
            tuple(item for item in self.later_starts if item in starts),
            tuple(item for item in self.right_sizes if item in sizes),
        )

    def as_json(self) -> dict[str, Any]:
        """Return them as values for JSON."""
        return {
            "later_starts": [item.as_json() for item in self.later_starts],
            "right_sizes": [item.as_json() for item in self.right_sizes],
        }


NO_CHOICES: Final = RecordedChoices()


def from_json(data: Mapping[str, Any]) -> RecordedChoices:
    """Return the choices of JSON values."""
    starts = (planned_starts.from_json(item) for item in data["later_starts"])
    return RecordedChoices(
        tuple(item for item in starts if item is not None),
        tuple(map(right_sizes.from_json, data["right_sizes"])),
    )


def _number(attempt: Attempt) -> str:
    """Return the number that sbatch printed, without a task's."""
    return attempt.job.partition("_")[0].partition("+")[0]
