"""An attempt reads its job id and restart count from the environment."""

import pytest

from toolkit.training.attempt.attempt import current


def test_an_attempt_is_judged_by_the_batch_script_that_says_so_and_no_other():
    at = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "3"}
    assert not current(at).judged_by_script
    assert not current(at | {"TOOLKIT_JUDGED_ATTEMPT": "11.3"}).judged_by_script, (
        "the job it was sent from"
    )
    assert current(at | {"TOOLKIT_JUDGED_ATTEMPT": "12.3"}).judged_by_script


def test_a_first_start_has_restart_count_0_though_slurm_leaves_it_unset(tmp_path):
    found = current({"SLURM_JOB_ID": "12", "TOOLKIT_RUN_DIR": str(tmp_path)})
    assert found.restart_count == 0
    assert found.verdict_file == tmp_path / "verdict.12.0.json"
    assert str(found.stop_files[0]) == "/shared/.toolkit/stop/12.0.json"
    assert found.stop_files[1] == tmp_path / "stop.12.0.json"


def test_a_job_id_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not a job id"):
        current({"SLURM_JOB_ID": "../12"})
