"""Names by which Slurm knows exactly one job.

The last task of a job array has the array's own number. By that number scontrol shows, updates,
holds and requeues every task. Therefore a task is named ARRAY_TASK. All pending tasks share one
record of that number, until they start one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from slurmplugins.errors import BadName

_NAME: Final = re.compile(r"([0-9]{1,11})(?:_([0-9]{1,10}))?", re.ASCII)

_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)
_CUT: Final = "..."
"""Slurm ends a list with it that was too long to print."""


@dataclass(frozen=True, slots=True)
class JobId:
    """A job's number, or an array's number with one of its tasks."""

    number: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"


def parse(text: str) -> JobId:
    """Read `4711` or `4711_3`. Raises BadName."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise BadName(f"not a job's number: {text[:80]!r}")
    return JobId(int(match[1]), None if match[2] is None else int(match[2]))


def contains_task(tasks: str, task: int) -> bool:
    """Return whether the list of tasks holds a task.

    A list that Slurm cut off holds every task after its last one.
    """
    task_list = tasks.partition("%")[0]
    last = -1
    for part in task_list.removesuffix(_CUT).split(","):
        if match := _RANGE.fullmatch(part):
            first, last = int(match[1]), int(match[2] or match[1])
            if first <= task <= last and (task - first) % (int(match[3] or 1) or 1) == 0:
                return True
    return task_list.endswith(_CUT) and task > last
