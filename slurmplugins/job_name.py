"""How Slurm names a job and no other.

The last task of a job array has the array's own number, by which scontrol shows, updates, holds and
requeues every task: a task is named ARRAY_TASK. The tasks that wait are one record of that number,
until they start one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BadName
from slurmplugins.slurm_json import number

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(r"([0-9]{1,11})(?:_([0-9]{1,10}))?", re.ASCII)
_WAITING: Final = re.compile(r"[0-9][0-9,:%.-]{0,199}", re.ASCII)
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


def of(record: Mapping[str, Any]) -> JobName:
    """What scontrol takes for the job of this record: tasks that wait go by the array's number."""
    array, task = array_of(record), _number(record.get("array_task_id"))
    if array and task is not None:
        return JobName(array, task)
    return JobName(_number(record.get("job_id")) or 0)


def alone(record: Mapping[str, Any]) -> str:
    """What `scontrol update` takes for this job alone: by the number of a het job's first component
    it would change all of them. `hold` and `requeue` take no such name, and are of all of them.
    """
    number = _number(record.get("job_id"))
    if number and _number(record.get("het_job_id")) == number:
        return f"{number}+0"
    return str(of(record))


def array_of(record: Mapping[str, Any]) -> int:
    """The number of the array it is of; 0 where it is of none."""
    return _number(record.get("array_job_id")) or 0


def waiting(record: Mapping[str, Any]) -> str:
    """The tasks that wait in this one record, as squeue writes them: `0-3,7%2`."""
    text = record.get("array_task_string")
    mine = array_of(record) and of(record).task is None and isinstance(text, str)
    return str(text) if mine and _WAITING.fullmatch(str(text)) else ""


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


def _number(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)
