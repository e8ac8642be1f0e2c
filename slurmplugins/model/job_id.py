"""How Slurm names a job and no other.

The last task of a job array has the array's own number, by which scontrol shows, updates, holds and
requeues every task: a task is named ARRAY_TASK. The tasks that wait are one record of that number,
until they start one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from slurmplugins.errors import BadName

_NAME: Final = re.compile(r"([0-9]{1,11})(?:_([0-9]{1,10}))?", re.ASCII)

_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)
_CUT: Final = "..."
"""Ends a list that was too long for Slurm."""


@dataclass(frozen=True, slots=True)
class JobName:
    """A job's number, or an array's and the task in it."""

    number: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"


def parse(text: str) -> JobName:
    """`4711` or `4711_3`. Raises BadName."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise BadName(f"not a job's number: {text[:80]!r}")
    return JobName(int(match[1]), None if match[2] is None else int(match[2]))


def holds(tasks: str, task: int) -> bool:
    """Whether a task is among those; also where the list was cut off before it."""
    listed = tasks.partition("%")[0]
    last = -1
    for part in listed.removesuffix(_CUT).split(","):
        if match := _RANGE.fullmatch(part):
            first, last = int(match[1]), int(match[2] or match[1])
            if first <= task <= last and (task - first) % (int(match[3] or 1) or 1) == 0:
                return True
    return listed.endswith(_CUT) and task > last
