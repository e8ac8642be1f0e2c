"""A scontrol with job arrays, which resolves ids as the real one.

The id of an array names all of its tasks. `scontrol show job --json` of 24.11.5 exits 0 and prints
NO_JOBS for an unknown job, and also if slurmctld does not answer. Without --json it exits 1, with
UNKNOWN_JOB or UNREACHED on standard error. Seen on a real 24.11.5.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmplugins.system.command import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence


NO_JOBS = '{"jobs": [], "last_update": {"set": true, "number": 0}, "errors": [], "warnings": []}'
EMPTY_QUEUE = NO_JOBS.replace('"number": 0', '"number": 1795464074')
"""slurmctld's own answer for all jobs when it has none: it is dated."""
UNREACHED = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
UNKNOWN_JOB = "slurm_load_jobs error: Invalid job id specified\n"


@dataclass
class ArrayTask:
    """The record of one task.

    `done` lists the verbs that reached the task.
    """

    array: int
    task: int
    comment: str = ""
    admin_comment: str = ""
    done: list[str] = field(default_factory=list)


class FakeScontrol:
    """Job arrays, by the job id of each task.

    The last task has the array's own id.
    """

    def __init__(self, array: int, tasks: int) -> None:
        later = {array + number: ArrayTask(array, number) for number in range(1, tasks)}
        self.tasks = {**later, array: ArrayTask(array, tasks)}

    def __call__(self, argv: Sequence[str]) -> str:
        verb, *words = argv[1:]
        if verb == "show":
            found = self._named(words[1])
            if "--oneliner" in words:
                return "\n".join(f"JobId={n} JobState={self._state(n)}" for n in found)
            # With --json, scontrol prints the whole array even for one task.
            array = self.tasks[found[0]].array
            return json.dumps({"jobs": [self._record(n) for n in self._named(str(array))]})
        for number in self._named(words[0].removeprefix("jobid=")):
            task = self.tasks[number]
            task.done.append(verb)
            for setting in words[1:]:
                key, _, value = setting.partition("=")
                if key == "comment":
                    task.comment = value
                elif key == "admincomment":
                    task.admin_comment = value
        return ""

    def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        """Run the command as a Runner does."""
        assert timeout > 0
        assert not stdin
        return CommandResult(0, self(argv), "")

    def _named(self, name: str) -> list[int]:
        array, _, task = name.partition("_")
        number = int(array)
        if task:
            return [n for n, t in self.tasks.items() if (t.array, t.task) == (number, int(task))]
        whole = [n for n, t in self.tasks.items() if t.array == number]
        return whole or [n for n in self.tasks if n == number]

    def _state(self, number: int) -> str:
        return "CANCELLED" if "cancel" in self.tasks[number].done else "RUNNING"

    def _record(self, number: int) -> dict[str, object]:
        task = self.tasks[number]
        return {
            "job_id": number,
            "array_job_id": {"set": True, "infinite": False, "number": task.array},
            "array_task_id": {"set": True, "infinite": False, "number": task.task},
            "job_state": [self._state(number)],
            "comment": task.comment,
            "admin_comment": task.admin_comment,
        }
