"""A cancelled job is not requeued, and a preempted one is."""

import subprocess

import pytest

from toolkit.training.slurm.job import is_cancelled


@pytest.mark.parametrize(
    ("shown", "answer"),
    [
        ("JobId=7 JobName=x JobState=CANCELLED Reason=None", True),
        ("JobId=7 JobName=JobState JobState=COMPLETING", False),
        ("JobId=7 JobState=PREEMPTED", False),
    ],
)
def test_a_cancelled_job_is_known_from_one_that_comes_back(shown, answer):
    assert is_cancelled("7", {"SLURM_JOB_ID": "7"}, lambda _: shown) is answer


def test_where_slurm_does_not_answer_no_job_counts_as_cancelled():
    def away(argv):
        raise subprocess.TimeoutExpired(argv, 1)

    assert not is_cancelled("7", {"SLURM_JOB_ID": "7"}, away)
    assert not is_cancelled("7", {}, lambda _: "JobState=CANCELLED")
