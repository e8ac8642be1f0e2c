"""The mark of the last checkpoint in the job's comment.

There is one recent mark, and the user's own comment stays.
"""

import json
import subprocess

import pytest

from toolkit.training.slurm.job_comment import (
    MAX_LENGTH,
    PERIOD,
    JobCommentWriter,
    comment_writer_for,
    with_checkpoint_mark,
    with_line,
)


class Scontrol:
    """A slurmctld with one job."""

    def __init__(self, comment="") -> None:
        self.comment, self.writes, self.broken = comment, 0, False

    def __call__(self, argv) -> str:
        if self.broken:
            raise subprocess.CalledProcessError(1, argv)
        if argv[1] == "show":
            return json.dumps({"jobs": [{"job_id": 7, "comment": self.comment}]})
        self.writes += 1
        assert argv[2] == "jobid=7"
        self.comment = argv[3].removeprefix("comment=")
        return ""


def tell(remark, at):
    remark.mark_checkpoint(at)
    remark.wait()


def test_the_newest_mark_replaces_the_older_and_the_users_words_stay():
    slurm = Scontrol("for the paper, table=2")
    remark = JobCommentWriter("7", slurm)
    tell(remark, 1000.9)
    tell(remark, 1000.9 + PERIOD)
    assert slurm.comment == f"for the paper, table=2 toolkit:checkpoint={1000 + int(PERIOD)}"


def test_slurmctld_is_told_once_a_minute_at_most():
    slurm = Scontrol()
    remark = JobCommentWriter("7", slurm)
    for at in range(1000, 1000 + int(PERIOD)):
        tell(remark, float(at))
    assert slurm.writes == 1


def test_a_slurmctld_that_refuses_costs_the_run_nothing():
    slurm = Scontrol("kept")
    slurm.broken = True
    remark = JobCommentWriter("7", slurm)
    tell(remark, 1000.0)
    slurm.broken = False
    tell(remark, 1000.0 + PERIOD)
    assert slurm.comment.startswith("kept toolkit:checkpoint=")


@pytest.mark.parametrize("length", [0, 10, MAX_LENGTH, 5 * MAX_LENGTH])
def test_a_comment_never_grows_past_its_bound(length):
    text = with_checkpoint_mark("x" * length, 1_800_000_000.0)
    assert len(text) <= MAX_LENGTH
    assert text.endswith("toolkit:checkpoint=1800000000")


def test_outside_a_job_nothing_is_logged():
    assert comment_writer_for("7", {}) is None
    assert comment_writer_for("7", {"SLURM_JOB_ID": "8"}) is None


@pytest.mark.parametrize("words", ["", "mine"])
def test_a_line_of_ours_does_not_run_into_the_mark(words):
    said = with_line(with_checkpoint_mark(words, 1000.0), "toolkit: held: scontrol release 18")
    assert said.split()[-2:] == ["18", "toolkit:checkpoint=1000"]
