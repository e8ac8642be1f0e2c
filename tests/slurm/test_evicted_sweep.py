"""A sweep of 24 trials on eight spot machines, some of which are taken away."""

from __future__ import annotations

import json

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.trained import HOME, SCRIPTS, Trained
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(900)]
SWEEP = "taken"
TRIALS = 24
NOTICES = (120.0, 1.0, 120.0)  # seconds: two that can be heard, one that can't


def tasks(cluster, *states: str) -> list[list[str]]:
    """Job and nodes of the sweep's tasks in those states; of all that are left without states."""
    asked = (f"--states={','.join(states)}",) if states else ()
    argv = ("squeue", "--noheader", "--array", "--user=ada", f"--name={SWEEP}", "--format=%A %N")
    return [line.split() for line in cluster.run(*argv, *asked).splitlines()]


def trial(cluster, job: Trained) -> int:
    """The number of the trial that a task works on."""
    return json.loads(cluster.run("cat", f"{HOME}/runs/{job.number}/trial.json"))["trial"]


def at_work(cluster, besides: set[str]) -> Trained | None:
    """A task in the middle of its trial that is none of those."""
    jobs = (Trained(cluster, number) for number, *_ in tasks(cluster, "RUNNING"))
    return next((job for job in jobs if job.number not in besides and job.steps()), None)


def test_trials_whose_machines_are_taken_go_on_and_every_trial_ends_once(cluster):
    for name in ("slow.py", "slow_trial.py"):
        cluster.write(f"{HOME}/{name}", (SCRIPTS / name).read_text())
    cluster.toolkit(
        *("sweep", "start", SWEEP, "--as", "ada", "--trials", str(TRIALS), "--at-once", "8"),
        *(f"{HOME}/slow_trial.py", "--epochs", "10"),
    )
    taken: dict[str, int] = {}
    for notice in NOTICES:
        job = until("a trial under way", lambda: at_work(cluster, set(taken)))
        taken[job.number] = trial(cluster, job)
        toolkit("local", "interrupt", job.nodes()[0], "--notice", str(notice))
    until("the sweep's end", lambda: not tasks(cluster), 600)

    found = json.loads(cluster.toolkit("sweep", "status", SWEEP, "--json").stdout)
    counts = found["counts"]
    assert counts.get("complete", 0) + counts.get("pruned", 0) == TRIALS == found["trials"], found
    assert found["best"]
    back = {number for number in taken if len(Trained(cluster, number).attempts()) > 1}
    assert back, "no trial was under way when its machine went"
    for number in back:
        job = Trained(cluster, number)
        assert (trial(cluster, job), job.causes()[-1]) == (taken[number], "finished")
