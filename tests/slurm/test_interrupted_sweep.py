"""A sweep of four trials on three spot instances, with interruptions."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.training_job import HOME, ON_FARM, SCRIPTS, TrainingJob
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SWEEP = "taken"
TRIALS, AT_ONCE = 4, 3
LAST = TRIALS - 1
NOTICES = {0: 120.0, 1: 1.0, LAST: 120.0}
"""Seconds of notice, by task: two that the job can use, one that it can't."""
COUNT = """
cd "$1"
for trial in $(grep -lF "$2" -- */trial.json); do
    echo "${trial%/*} $(wc -l <"${trial%/*}/attempts.jsonl")"
done
"""


@dataclass(frozen=True)
class Task:
    """A running task of the sweep."""

    job: TrainingJob
    array: str  # the array's own job id
    node: str

    def trial(self) -> int:
        """Return the number of the task's trial."""
        path = f"{HOME}/runs/{self.job.number}/trial.json"
        return json.loads(self.job.cluster.run("cat", path))["trial"]


def tasks_in_queue(cluster, *options: str) -> list[list[str]]:
    """Return job, array, number and node of the sweep's queued tasks."""
    argv = ("squeue", "--noheader", "--array", "--user=ada", f"--name={SWEEP}")
    return [
        line.split() for line in cluster.run(*argv, "--format=%A %F %K %N", *options).splitlines()
    ]


def training_task(cluster, number: int) -> Task | None:
    """Return the task, once it has saved a part of its trial."""
    for job, array, task_id, *node in tasks_in_queue(cluster, "--states=RUNNING"):
        if task_id == str(number) and node and TrainingJob(cluster, job).saved():
            return Task(TrainingJob(cluster, job), array, *node)
    return None


def attempt_counts(cluster) -> dict[str, int]:
    """Return the number of attempts of each task, by job."""
    sweep_line = f'"sweep": "{SWEEP}"'
    lines = cluster.run("sh", "-c", COUNT, "sh", f"{HOME}/runs", sweep_line).splitlines()
    return {job: int(count) for job, count in map(str.split, lines)}


def test_interrupted_trials_resume_and_every_trial_completes_once(cluster):
    """Interrupt three tasks, and check their second attempts.

    They resume at their last save. No other task has a second attempt.
    """
    for name in ("slow.py", "slow_trial.py"):
        cluster.write(f"{HOME}/{name}", (SCRIPTS / name).read_text())
    cluster.toolkit(
        *(
            "sweep",
            "start",
            SWEEP,
            "--as",
            "ada",
            "--trials",
            str(TRIALS),
            "--at-once",
            str(AT_ONCE),
        ),
        *(f"--sbatch={option}" for option in ON_FARM),
        *(f"{HOME}/slow_trial.py", "--epochs", "4", "--stay-in", *map(str, NOTICES)),
    )
    interrupted: dict[str, tuple[Task, int, int]] = {}
    for number, notice in NOTICES.items():
        task = until(f"a checkpoint of task {number}", lambda n=number: training_task(cluster, n))
        # The last task has the array's own job id, which scontrol would take for all tasks.
        assert (task.job.number == task.array) == (number == LAST)
        interrupted[task.job.number] = task, task.trial(), task.job.saved()[-1]
        toolkit("local", "interrupt", task.node, "--notice", str(notice))
    until("the sweep's end", lambda: not tasks_in_queue(cluster))

    status = json.loads(cluster.toolkit("sweep", "status", SWEEP, "--json").stdout)
    counts = status["counts"]
    assert counts.get("complete", 0) + counts.get("pruned", 0) == TRIALS == status["trials"], status
    assert status["best"]
    attempts_by_job = attempt_counts(cluster)
    assert len(attempts_by_job) == TRIALS
    assert {job for job, count in attempts_by_job.items() if count > 1} == interrupted.keys(), (
        attempts_by_job
    )
    for task, trial, saved in interrupted.values():
        assert [attempt["step_start"] for attempt in task.job.attempts()] == [0, saved]
        assert (task.trial(), task.job.causes()[-1]) == (trial, "finished")
