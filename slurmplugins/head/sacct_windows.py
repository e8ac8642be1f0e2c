"""The windows by which all attempts of sacct are read: no attempt is missed. Pure.

sacct gives an attempt by its end: `-S a -E b` has all that became eligible before b and did not end
before a. Two adjacent windows therefore have everything between them. Source: the conditions on
`time_eligible` and `time_end` in slurmdbd's as_mysql_jobacct_process.c.

A row may come late: slurmctld keeps rows while slurmdbd is away. So there are two places. `read` is
where the last window ended, and `settled` is the last such place at which slurmctld kept none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.json_input import finite
from slurmplugins.slurm.sacct import second

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST: Final = 1_704_067_200
"""2024-01-01. No cluster of this toolkit is older."""
MARGIN: Final = 3600
"""Seconds by which a run begins before the place that an earlier one reached."""
AHEAD: Final = 10 * 365 * 86_400
FIRST_SPAN: Final = 3600
SHORTEST_SPAN: Final = 1800
"""Attempts without an end are in every window, so a shorter one would help little."""
LONGEST_SPAN: Final = 31 * 86_400
MOST_CHARACTERS: Final = 16 * 1024 * 1024
"""A longer answer is asked for again in two halves. It is about 50,000 attempts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time by the wall clock, and by the monotonic one of this boot."""

    wall: int
    monotonic: float
    boot: str


@dataclass(frozen=True, slots=True)
class Place:
    """The place that the reading of attempts has reached, from run to run."""

    settled: int = FIRST
    read: int = FIRST
    span: int = FIRST_SPAN
    open_jobs: Mapping[str, str] = field(default_factory=dict)
    """The raw job id of each attempt without an end, by DBIndex."""
    moment: Moment | None = None
    """When the last run was."""

    def to_json(self) -> dict[str, Any]:
        moment = self.moment
        return {
            "settled": self.settled,
            "read": self.read,
            "span": self.span,
            "open": dict(self.open_jobs),
            "moment": None if moment is None else [moment.wall, moment.monotonic, moment.boot],
        }


def from_json(value: Any) -> Place:
    """Read a place; the beginning for anything else."""
    try:
        wall, monotonic, boot = value["moment"]
        moment = Moment(int(finite(wall)), finite(monotonic), str(boot))
        open_jobs = {str(key): str(job) for key, job in value["open"].items()}
        settled, read, span = (int(finite(value[name])) for name in ("settled", "read", "span"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return Place()
    return Place(settled, read, min(max(span, SHORTEST_SPAN), LONGEST_SPAN), open_jobs, moment)


def begin(place: Place, now: Moment, *, is_settled: bool) -> tuple[int, Place]:
    """Return the first second of a run, and the place with it.

    A clock that was set back repeats seconds, so the run begins earlier by as much. After a boot
    nobody knows by how much, and a run whose place is in the future begins anew.
    """
    reached = place.settled if is_settled else max(place.settled, place.read)
    set_back = _seconds_set_back(place, now, reached)
    start = max(min(reached, now.wall) - MARGIN - set_back, FIRST)
    if set_back:
        place = replace(place, settled=min(place.settled, start), read=min(place.read, start))
    return start, replace(place, moment=now)


def _seconds_set_back(place: Place, now: Moment, reached: int) -> int:
    """Return by how much the clock was set back.

    It is all time where nobody knows.
    """
    last = place.moment
    if last is not None and last.boot == now.boot:
        expected = last.wall + now.monotonic - last.monotonic
        set_back = int(expected - now.wall)
        return set_back + 1 if set_back > 0 else 0
    return now.wall if max(last.wall if last else 0, reached) > now.wall else 0


def window_end(since: int, span: int, now: int) -> int:
    """Return the end of the window that begins at `since`."""
    return max(min(since + span, now), since + 1)


def asked_end(until: int, now: int) -> int:
    """Return the end that sacct is asked for.

    A clock that was set back left attempts that became eligible in the future.
    """
    return until + AHEAD if until >= now else until


def grown(span: int, characters: int) -> int:
    """Return the next window's length after an answer of that size."""
    return min(span * 2, LONGEST_SPAN) if characters < MOST_CHARACTERS // 4 else span


def after_page(
    place: Place, rows: Sequence[Mapping[str, str]], until: int, *, is_settled: bool
) -> Place:
    """Return the place after a page of these rows, up to `until`."""
    open_jobs = dict(place.open_jobs)
    for row in rows:
        if ended(row) is None:
            open_jobs[row["DBIndex"]] = row["JobIDRaw"]
        else:
            open_jobs.pop(row["DBIndex"], None)
    settled = max(place.settled, until) if is_settled else place.settled
    return replace(place, open_jobs=open_jobs, read=max(place.read, until), settled=settled)


def vanished(place: Place, rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the open attempts that a page lacks.

    Their ends were set back.
    """
    present = {row["DBIndex"] for row in rows}
    return {key: job for key, job in place.open_jobs.items() if key not in present}


def ended(row: Mapping[str, str]) -> int | None:
    """Return the end of an attempt; None while it has none."""
    return second(row["End"])


def earliest_submission(rows: Sequence[Mapping[str, str]], default: int) -> int:
    """Return the earliest submission of the attempts that have ended."""
    submissions = [
        submitted
        for row in rows
        if ended(row) is not None and (submitted := second(row["Submit"])) is not None
    ]
    return min([*submissions, default])
