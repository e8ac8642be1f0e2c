"""The tags of a run's record."""

from slurmplugins.head import mlflow
from toolkit.training.recording import recorder as run_record


def test_the_head_finds_a_jobs_runs_by_the_tag_that_the_job_writes(attempt_of):
    """Use one tag name in both modules.

    A job can't import modules of the head node, so each has its own constant.
    """
    mine = attempt_of()
    assert run_record._run_tags(mine, [], 1)[mlflow.JOB_TAG] == mine.job_id
