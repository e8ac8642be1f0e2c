"""The last task of a job array, which has the array's number.

Answers and commands must still be about the task alone.
"""

import pytest

from slurmplugins.slurm import json_parser
from tests.fakes.scontrol import FakeScontrol
from toolkit.training.slurm.job import SlurmJob, is_cancelled
from toolkit.training.slurm.job_comment import comment_writer_for
from toolkit.training.slurm.job_id import task_name

LAST, ANOTHER = 40, 41


def environment(job: int, task: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_ARRAY_JOB_ID": "40",
        "SLURM_ARRAY_TASK_ID": str(task),
    }


@pytest.fixture
def slurmctld() -> FakeScontrol:
    return FakeScontrol(array=40, tasks=3)


def last(slurmctld: FakeScontrol) -> SlurmJob:
    return SlurmJob("40", slurmctld, task_name("40", environment(LAST, 3)))


def others(slurmctld: FakeScontrol) -> list[object]:
    return [task for number, task in slurmctld.tasks.items() if number != LAST]


def test_the_last_task_of_an_array_requeues_and_holds_no_other(slurmctld):
    job = last(slurmctld)
    assert job.requeue_at(2_000_000_000.0)
    assert job.requeue_held()
    assert slurmctld.tasks[LAST].done == ["requeue", "update", "requeuehold"]
    assert not any(task.done for task in others(slurmctld))


def test_its_words_and_marks_are_written_over_nobody_elses(slurmctld):
    slurmctld.tasks[LAST].comment, slurmctld.tasks[ANOTHER].comment = "mine", "theirs"
    job = last(slurmctld)
    assert job.facts().comment == "mine"
    assert job.append_comment(job.facts(), "toolkit: held")
    remark = comment_writer_for("40", environment(LAST, 3), slurmctld)
    assert remark is not None
    remark.mark_checkpoint(1000.0)
    remark.wait()
    assert slurmctld.tasks[LAST].comment == "mine | toolkit: held toolkit:checkpoint=1000"
    assert [task.comment for task in others(slurmctld)] == ["theirs", ""]


def test_another_tasks_cancellation_is_not_its_own(slurmctld):
    slurmctld.tasks[ANOTHER].done.append("cancel")
    assert not is_cancelled("40", environment(LAST, 3), slurmctld)
    assert is_cancelled("41", environment(ANOTHER, 1), slurmctld)


def test_a_job_that_is_no_task_is_named_by_its_number():
    assert task_name("7", {"SLURM_JOB_ID": "7"}) == "7"
    submitted_by_a_task = environment(ANOTHER, 1) | {"SLURM_JOB_ID": "77"}
    assert task_name("77", submitted_by_a_task) == "77"
    assert task_name("7", environment(LAST, 3)) == "7", "an array that is somebody else's"


@pytest.mark.parametrize("job", ["7", "40"])
def test_the_head_and_the_job_name_an_arrays_task_alike(job):
    environment = {"SLURM_JOB_ID": "40", "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "0"}
    of_task = {"array_job_id": 40, "array_task_id": 0} if job == "40" else {}
    assert str(json_parser.job_id({"job_id": int(job), **of_task})) == task_name(job, environment)
