"""A lost attempt gets its cause and cost from accounting, however late."""

import os
from dataclasses import replace

import pytest

from tests.fakes.own_job import FakeScontrol
from toolkit.training.io.durable_files import write_json
from toolkit.training.requeue import previous_attempts
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile
from toolkit.training.slurm.job import SlurmJob

BEGAN, LAST_SIGN, GIVEN_UP = 2_000_000_000.0, 2_000_000_100.0, 2_000_003_600.0
OVER = f"12|NODE_FAIL|{BEGAN - 8:.0f}|{GIVEN_UP:.0f}\n"
RUNNING = f"12|RUNNING|{BEGAN - 8:.0f}|Unknown\n"


@pytest.fixture
def attempts_file(attempt_of):
    """An attempts file with one lost attempt, which had a stop request."""
    first = replace(attempt_of(0), started_at=BEGAN)
    first.run_dir.mkdir()
    write_json(first.stop_files[1], {"cause": "spot-interruption"})
    os.utime(first.stop_files[1], (LAST_SIGN,) * 2)
    attempts_file = AttemptsFile(first.run_dir / "attempts.jsonl")
    machine = ({"price": "36"},)
    attempts_file.append(
        AttemptRecord.at_start(first, 0, BEGAN, world_size=1, nodes=("n",), instances=machine)
    )
    attempts_file.close_lost(last_seen=LAST_SIGN, step_end=0)
    return attempts_file


@pytest.mark.parametrize("answers", [[], [None], [None, None, RUNNING], [RUNNING]])
def test_accounting_that_is_away_or_late_changes_nothing_in_the_attempts_file_once_it_answers(
    attempts_file, attempt_of, answers
):
    scontrol = FakeScontrol()
    for restart, answer in enumerate([*answers, OVER], 1):
        scontrol.accounting = answer
        previous_attempts.classify_previous(
            attempts_file, attempt_of(restart), SlurmJob("12", scontrol), {}
        )
        (lost,) = attempts_file.attempts()
        assert lost.cause == "spot-interruption", "what is known counts at once"
        assert lost.rule.startswith("asked-spot@" if answer == OVER else "")
    assert (lost.seconds, lost.cost_usd) == (3600.0, "36.000000")
    assert lost.detail == "spot-interruption"


@pytest.mark.parametrize("answer", [OVER, "", "11|NODE_FAIL|1|2\n"])
def test_an_attempt_that_accounting_has_told_is_not_asked_about_again(
    attempts_file, attempt_of, answer
):
    scontrol = FakeScontrol(accounting=answer)
    previous_attempts.classify_previous(attempts_file, attempt_of(1), SlurmJob("12", scontrol), {})
    told = attempts_file.attempts()
    assert told[0].rule
    scontrol.accounting = None
    previous_attempts.classify_previous(attempts_file, attempt_of(2), SlurmJob("12", scontrol), {})
    assert attempts_file.attempts() == told
