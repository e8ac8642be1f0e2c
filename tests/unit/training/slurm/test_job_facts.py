"""The facts that a job reads of itself from scontrol."""

import json

import pytest

from toolkit.training.slurm.job import SlurmJob


@pytest.mark.parametrize(
    ("fields", "log"),
    [
        pytest.param({"standard_output": "/home/ada/x-7.out"}, "/home/ada/x-7.out", id="24.11"),
        pytest.param(
            {"standard_output": "/home/ada/x-%j.out", "stdout_expanded": "/home/ada/x-7.out"},
            "/home/ada/x-7.out",
            id="25.05 and later",
        ),
        pytest.param({"standard_output": "", "stdout_expanded": ""}, "", id="no log"),
    ],
)
def test_a_jobs_log_is_the_file_and_not_the_pattern_that_names_it(fields, log):
    """Since 25.05, scontrol tells both, and the older key has the pattern."""
    answer = json.dumps({"jobs": [{"job_id": 7, **fields}]})
    assert SlurmJob("7", lambda argv: answer).facts().log == log
