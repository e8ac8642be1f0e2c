"""The head's own call of sacct: its limits, and what counts as too much."""

import pytest

from slurmplugins.errors import SlurmError
from slurmplugins.slurm import sacct
from slurmplugins.slurm.accounting import SlurmAccounting
from slurmplugins.system.command import TIMED_OUT
from tests.fakes.runner import FakeRunner
from tests.fakes.slurmdbd import NAMES

CALL = (*sacct.ENVIRONMENT, "/usr/bin/sacct")


@pytest.fixture
def runner():
    runner = FakeRunner()
    runner.answer(*CALL, "--helpformat", stdout=" ".join(NAMES))
    return runner


@pytest.fixture
def accounting(runner):
    return SlurmAccounting(runner, "/usr/bin")


@pytest.mark.parametrize("returncode", [TIMED_OUT, -9])
def test_a_sacct_that_takes_too_long_or_is_killed_is_too_much(runner, accounting, returncode):
    runner.answer(*CALL, "--allusers", returncode=returncode)
    assert accounting.window(0, 3600) is None


def test_a_sacct_that_fails_is_an_error(runner, accounting):
    runner.answer(*CALL, "--allusers", returncode=1, stderr="slurmdbd: Connection refused")
    with pytest.raises(SlurmError, match="Connection refused"):
        accounting.window(0, 3600)


def test_each_call_has_a_short_delimiter_of_its_own(runner, accounting):
    tokens = {accounting.window(0, 3600).token for _ in range(3)}
    assert len(tokens) == 3
    assert {len(sacct.delimiter(token)) for token in tokens} == {10}
    words = {word for argv in runner.commands for word in argv}
    assert words >= {f"--delimiter=\x1f{token}\x1f" for token in tokens}


def test_an_answer_that_was_cut_is_an_error(runner, accounting):
    runner.answer(*CALL, "--allusers", stdout="1\x1f")
    with pytest.raises(SlurmError):
        accounting.window(0, 3600).rows()


@pytest.mark.parametrize(
    ("stdout", "returncode", "settled"),
    [
        ("Agent queue size:    0\nDBD Agent queue size: 0\n", 0, True),
        ("Agent queue size:    0\nDBD Agent queue size: 17\n", 0, False),
        ("Agent queue size:    0\n", 0, False),
        ("DBD Agent queue size: 0\n", 1, False),
    ],
)
def test_rows_are_settled_while_slurmctld_keeps_none(
    runner, accounting, stdout, returncode, settled
):
    runner.answer("/usr/bin/sdiag", stdout=stdout, returncode=returncode)
    assert accounting.is_settled() is settled


def test_many_jobs_are_asked_for_in_several_calls(runner, accounting):
    accounting.jobs([str(number) for number in range(1200)], 3600)
    calls = [argv for argv in runner.commands if argv[-1].startswith("--jobs=")]
    assert [argv[-1].count(",") + 1 for argv in calls] == [500, 500, 200]


def test_slurms_own_list_of_instances_is_asked_for_by_start_alone(runner, accounting):
    argv = (*sacct.SHOW_INSTANCES[:3], "/usr/bin/sacctmgr")
    runner.answer(*argv, stdout="demo|gpu-001\n")
    assert accounting.instances("demo", 1_700_000_000) == "demo|gpu-001\n"
    assert runner.commands[-1][-3:-1] == ["clusters=demo", "start=2023-11-14T22:13:20"]
    runner.answer(*argv, returncode=1, stderr="slurmdbd: Connection refused")
    with pytest.raises(SlurmError, match="Connection refused"):
        accounting.instances("demo", 0)
