"""The other jobscripts with interruptions: pipeline, ZeRO, a notebook.

test_elastic_jobs.py interrupts the one of FSDP.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.training_job import HOME, ON_FARM, PYTHON, TrainingJob, paced, submit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
JOBSCRIPTS = "/shared/jobscripts"
# About a hundred steps each: with paced.py a minute, in which the notices must arrive.
ARGUMENTS = {
    "pipeline": ("--epochs", "6", "--hidden", "64"),
    "deepspeed": ("--epochs", "6", "--hidden", "64", "--stage", "3", "--offload"),
}
STEPS = 5  # steps of a job before its interruption
# Request the status with the right token and with another. Nothing is printed before the notebook
# answers.
REQUEST_STATUS = """
import sys, urllib.error, urllib.request
place, file = sys.argv[1:]
try:
    for token in (open(file).read(), "another"):
        try:
            answer = urllib.request.urlopen(f"http://{place}/api/status?token={token}", timeout=5)
            print(answer.status, end=" ")
        except urllib.error.HTTPError as refused:
            print(refused.code, end=" ")
except OSError:
    pass
"""


@dataclass(frozen=True)
class InterruptedJob:
    """A job of two nodes that lost one after `reached` steps."""

    job: TrainingJob
    reached: int
    record: dict[str, object]
    """slurmctld's record while the job trained. slurmctld forgets it five minutes after the end."""


# Options of sbatch's command line alone; the job script has others.
COMMAND_LINE_OPTIONS = ("--nice=5", "--time=60", "--mem-per-cpu", "1G")


def script(cluster, name: str) -> tuple[str, str, str]:
    return f"{JOBSCRIPTS}/{name}.sbatch", paced(cluster), f"{JOBSCRIPTS}/{name}/train.py"


def notebook_answer(cluster, job: TrainingJob, starts: int) -> str | None:
    """Return the notebook's answers to its user after so many starts.

    None means that the notebook does not answer yet.
    """
    places = re.findall(r"the notebook is at (\S+);", job.output())
    if len(places) < starts:
        return None
    token = f"{HOME}/runs/{job.number}/token"
    return cluster.as_user(*PYTHON, "-c", REQUEST_STATUS, places[-1], token).strip() or None


@pytest.fixture(scope="module")
def interrupted_jobs(cluster):
    """Jobs that run at the same time, each with one interrupted node."""
    jobs = {
        name: submit(cluster, *ON_FARM, *COMMAND_LINE_OPTIONS, *script(cluster, name), *words)
        for name, words in ARGUMENTS.items()
    }
    notebook = submit(cluster, *ON_FARM, f"{JOBSCRIPTS}/interactive.sbatch")
    interrupted: dict[str, InterruptedJob] = {}

    def all_interrupted() -> bool:
        """Interrupt each job soon after its training begins.

        The boot of another job's nodes may last longer than the job.
        """
        for name, job in jobs.items():
            if name not in interrupted and (reached := job.steps()) >= STEPS:
                interrupted[name] = InterruptedJob(job, reached, job.record())
                toolkit("local", "interrupt", job.nodes()[-1], "--notice", "120")
        return interrupted.keys() == jobs.keys()

    until("all jobs training", all_interrupted)
    assert until("the notebook", lambda: notebook_answer(cluster, notebook, 1)) == "200 403"
    interrupted["interactive"] = InterruptedJob(notebook, 0, notebook.record())
    toolkit("local", "interrupt", notebook.nodes()[0], "--notice", "120")
    return interrupted


@pytest.mark.parametrize("name", ARGUMENTS)
def test_sharded_training_resumes_after_an_interruption(cluster, interrupted_jobs, name):
    job = interrupted_jobs[name].job
    assert job.attempt(1)["step_start"] >= interrupted_jobs[name].reached
    assert job.ended() == {"COMPLETED"}, job.output()
    assert job.causes() == ["spot-interruption", "finished"]
    assert {attempt["world_size"] for attempt in job.attempts()} == {2}
    audit = cluster.as_user(*PYTHON, "-m", "toolkit.training", "audit", f"{HOME}/runs/{job.number}")
    assert json.loads(audit)["ok"], audit


def test_a_replay_is_submitted_with_the_options_of_the_first_command_line(
    cluster, interrupted_jobs
):
    job, first_record = interrupted_jobs["pipeline"].job, interrupted_jobs["pipeline"].record
    assert job.ended() == {"COMPLETED"}, job.output()
    replay = json.loads(cluster.toolkit("runs", "replay", job.number, "--json").stdout)
    again = TrainingJob(cluster, replay["job_id"])
    record = again.record()
    for fact in ("nice", "shared", "memory_per_cpu", "node_count", "tres_per_node"):
        assert record[fact] == first_record[fact], fact
    # slurmctld 24.11 was seen to add a minute where the nodes started slowly.
    first_limit, limit = (item["time_limit"]["number"] for item in (first_record, record))
    assert first_limit <= limit <= first_limit + 10
    cluster.as_user("scancel", again.number)


def test_a_notebook_is_requeued_after_an_interruption_and_answers_its_user(
    cluster, interrupted_jobs
):
    job = interrupted_jobs["interactive"].job
    assert until("the next notebook", lambda: notebook_answer(cluster, job, 2)) == "200 403"
    assert job.record()["restart_cnt"] == 1
    cluster.as_user("scancel", job.number)
