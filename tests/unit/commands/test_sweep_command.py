"""`toolkit sweep` submits as the sweep's user and reads the sweep's storage."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from toolkit.commands import sweep as sweep_command
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import UnknownUserError
from toolkit.runs.errors import SweepNotFound, TrackingAway

CONFIG = str(Path(__file__).parents[3] / "examples" / "local.yaml")
TRIAL = {"number": 3, "value": 0.97, "task": "5_3", "params": {"rate": 0.01, "hidden": 128}}


class Head:
    """A head node with one sweep."""

    def __init__(self) -> None:
        self.calls = []
        self.code = 0

    def run(self, argv, *, timeout=60):
        self.calls.append(list(argv))
        if argv[0] == "getent":
            return f"{argv[-1]}:x:2001:2001::/shared/home/{argv[-1]}:/bin/bash\n"
        if "sbatch" in argv:
            return "41;demo\n"
        is_change = "--settle" in argv and "--dry-run" not in argv
        assert argv[:4] == ["runuser", "-u", "optuna" if is_change else "nobody", "--"]
        if self.code:
            raise HeadCommandFailed("no", returncode=self.code, stderr="it does not answer")
        settled = [4] if "--settle" in argv else []
        return json.dumps(
            {
                "sweep": argv[-1],
                "direction": "maximize",
                "trials": 3,
                "counts": {"complete": 1, "running": 2},
                "best": [TRIAL],
                "gone": [] if settled else [4],
                "settled": settled,
            }
        )


@pytest.fixture
def head(as_head):
    return as_head(Head())


def sweep(*words):
    return CliRunner().invoke(sweep_command.command, [words[0], "--config", CONFIG, *words[1:]])


START = ("start", "--as", "ada", "--trials", "4", "--at-once", "2")


def test_a_sweep_is_submitted_as_a_job_array_of_its_user(head):
    result = sweep(*START, "--sbatch=--partition=gpu", "digits", "train.py", "--epochs", "3 0")
    assert result.stdout == "sweep digits: job array 41, 4 trials\n"
    argv = head.calls[-1]
    assert argv[:6] == ["runuser", "-u", "ada", "--", "env", "-i"]
    assert "TOOLKIT_SWEEP=digits" in argv
    assert argv[argv.index("sbatch") + 1 :] == [
        "--parsable",
        "--array=0-3%2",
        "--job-name=digits",
        "--partition=gpu",
        "/shared/jobscripts/sweep.sbatch",
        "train.py",
        "--epochs",
        "3 0",
    ]


def test_a_dry_run_prints_the_call_and_submits_nothing(head):
    assert "--array=0-3%2" in sweep(*START, "--dry-run", "digits", "train.py").stdout
    assert [call[0] for call in head.calls] == ["getent"]
    result = json.loads(sweep(*START, "--dry-run", "--json", "digits", "train.py").stdout)
    assert result["job_id"] == ""


@pytest.mark.parametrize("name", ["a b", "-x", "", "x" * 101, "a;b"])
def test_a_sweep_name_that_is_no_plain_word_is_refused(head, name):
    assert sweep(*START, "--", name, "train.py").exit_code == 2
    assert head.calls == []


def test_a_sweep_is_started_only_as_a_user_of_the_cluster(head):
    assert sweep("start", "--as", "root", "digits", "train.py").exit_code == 2
    assert head.calls == []


def test_a_user_unknown_to_the_head_node_is_an_error(head, monkeypatch):
    monkeypatch.setattr(head, "run", lambda argv, **_: "\n")
    assert isinstance(sweep(*START, "digits", "train.py").exception, UnknownUserError)


def test_status_counts_trials_and_names_those_without_a_task(head):
    output = sweep("status", "digits").stdout
    assert "3 trials, maximize: 1 complete, 2 running" in output
    assert "(--settle fails them): 4" in output
    assert "0.97" in output
    assert json.loads(sweep("status", "--json", "digits").stdout)["gone"] == [4]


def test_status_settle_fails_lost_trials_and_has_a_dry_run(head):
    assert "failed, as their tasks are gone: 4" in sweep("status", "--settle", "digits").stdout
    output = sweep("status", "--settle", "--dry-run", "digits").stdout
    assert "would be failed: 4" in output
    assert "--dry-run" in head.calls[-1]


def test_best_lists_trials_with_their_parameters(head):
    lines = sweep("best", "--count", "1", "digits").stdout.splitlines()
    assert lines[0].split() == ["TRIAL", "VALUE", "TASK", "rate", "hidden"]
    assert lines[1].split() == ["3", "0.97", "5_3", "0.01", "128"]
    assert json.loads(sweep("best", "--json", "digits").stdout) == [TRIAL]


@pytest.mark.parametrize(("code", "error"), [(2, SweepNotFound), (3, TrackingAway)])
def test_an_absent_sweep_and_unreachable_storage_are_different_errors(head, code, error):
    head.code = code
    assert isinstance(sweep("status", "digits").exception, error)


def test_sweep_is_a_command_group():
    assert isinstance(sweep_command.command, click.Group)
