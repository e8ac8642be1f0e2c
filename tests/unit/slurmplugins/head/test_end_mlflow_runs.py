"""MLflow runs end in the state of their job.

This holds also if no process on the node was left to report it.
"""

import json

import pytest

from slurmplugins import mlflow_runs
from slurmplugins.errors import SlurmUnreachable, TrackingError
from slurmplugins.head import mlflow as mlflow_client
from slurmplugins.head.end_mlflow_runs import QUIET_SECONDS, AttemptEnd, end_runs, runs_to_end
from slurmplugins.head.mlflow import MlflowRest
from tests.fakes.mlflow import FakeMlflow, a_run
from tests.fakes.runner import FakeRunner

NOW = 10_000.0
LONG_AGO = NOW - QUIET_SECONDS - 1


def ends(*rows, queued=(), job="7", now=NOW):
    """Return the status that job 7's RUNNING MLflow run gets.

    None means that the MLflow run is left alone.
    """
    rows = [AttemptEnd(7, state, ended) for state, ended in rows]
    found = runs_to_end([a_run("r1", job)], rows, frozenset(queued), now)
    return found[0].status if found else None


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("CANCELLED", "KILLED"),
        ("COMPLETED", "FINISHED"),
        ("FAILED", "FAILED"),
        ("TIMEOUT", "FAILED"),
        ("OUT_OF_MEMORY", "FAILED"),
        ("NODE_FAIL", "FAILED"),
        ("PREEMPTED", "KILLED"),
    ],
)
def test_an_mlflow_run_whose_job_has_ended_gets_the_jobs_state(state, status):
    assert ends((state, LONG_AGO)) == status


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED"])
def test_the_mlflow_run_of_a_cancelled_or_completed_job_is_ended_at_once(state):
    assert ends((state, NOW - 1)) is not None


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "TIMEOUT", "PREEMPTED"])
def test_a_job_that_may_still_be_requeued_is_waited_for(state):
    assert ends((state, NOW - QUIET_SECONDS + 1)) is None


@pytest.mark.parametrize(
    "rows",
    [
        [("RUNNING", None)],
        [("PENDING", None), ("NODE_FAIL", LONG_AGO)],
        [("NODE_FAIL", LONG_AGO), ("REQUEUED", LONG_AGO + 1)],
        [("SUSPENDED", None)],
        [],
    ],
)
def test_a_run_whose_job_goes_on_or_is_not_known_is_left_alone(rows):
    assert ends(*rows) is None


def test_a_job_in_the_queue_is_not_over_whatever_the_database_says():
    """Keep a job in the queue that slurmdbd reports as FAILED.

    slurmdbd learns of a requeue later than slurmctld.
    """
    assert ends(("FAILED", LONG_AGO), queued=[7]) is None


def test_the_last_attempt_decides_in_whatever_order_the_rows_come():
    rows = [("COMPLETED", LONG_AGO), ("PREEMPTED", LONG_AGO - 50), ("NODE_FAIL", LONG_AGO - 99)]
    assert ends(*rows) == ends(*reversed(rows)) == "FINISHED"


def test_an_mlflow_run_outside_of_slurm_is_left_alone():
    assert ends(("CANCELLED", LONG_AGO), job="local") is None


def slurm(rows="", queue=""):
    runner = FakeRunner(strict=True)
    runner.answer("env", stdout=rows)
    runner.answer("squeue", stdout=queue)
    return runner


def test_ending_an_mlflow_run_writes_its_status_end_time_and_reason():
    mlflow = FakeMlflow.of(a_run("r1"), a_run("r2", "8"), a_run("r3", "9", status="FINISHED"))
    runner = slurm("7|CANCELLED by 1001|9000\n8|RUNNING|Unknown\n", "8\n")
    (done,) = end_runs(mlflow, runner, NOW, dry_run=False)
    assert (done.run_id, done.status) == ("r1", "KILLED")
    assert (mlflow.runs["r1"].status, mlflow.runs["r1"].ended) == ("KILLED", 9000.0)
    assert mlflow.runs["r1"].tags["toolkit.ended_by"] == "sacct: CANCELLED"
    assert mlflow.runs["r2"].status == "RUNNING"
    asked = runner.commands[0]
    assert "--jobs=7,8" in asked
    assert end_runs(mlflow, runner, NOW, dry_run=False) == ()


def test_a_dry_run_says_the_same_and_changes_nothing():
    mlflow = FakeMlflow.of(a_run("r1"))
    assert end_runs(mlflow, slurm("7|TIMEOUT|9000\n"), NOW, dry_run=True)[0].status == "FAILED"
    assert mlflow.runs["r1"].status == "RUNNING"


def test_without_slurm_no_mlflow_run_is_ended():
    mlflow = FakeMlflow.of(a_run("r1"))
    runner = FakeRunner()
    runner.answer("env", stderr="slurmdbd is away", returncode=1)
    with pytest.raises(SlurmUnreachable, match="slurmdbd is away"):
        end_runs(mlflow, runner, NOW, dry_run=False)
    assert mlflow.runs["r1"].status == "RUNNING"


def test_slurm_is_not_asked_when_no_run_is_running():
    assert end_runs(FakeMlflow.of(), FakeRunner(strict=True), NOW, dry_run=False) == ()


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("7", ["r1"]),
        ("a" * 32, ["a" * 32]),
        ("b" * 32, []),
        ("digits 8", ["a" * 32]),
        ("/shared/runs/7/", ["r1"]),
        ("x' OR 'a' = 'a", []),
    ],
)
def test_a_run_is_found_by_job_id_name_or_folder(reference, found):
    tags = {"toolkit.job_id": "7", "toolkit.run_dir": "/shared/runs/7"}
    mlflow = FakeMlflow.of(a_run("r1", tags=tags), a_run("a" * 32, "8"))
    assert [run.run_id for run in mlflow_client.find_runs(mlflow, reference)] == found


class PagedServer(MlflowRest):
    """A server with two experiments, one a page, and an MLflow run."""

    def _call(self, path, body):
        if path == "experiments/search":
            if body.get("page_token"):
                return {"experiments": [{"experiment_id": "1"}]}
            return {"experiments": [{"experiment_id": "0"}], "next_page_token": "more"}
        assert body["experiment_ids"] == ["0", "1"]
        info = {"run_id": "r1", "run_name": "digits", "status": "FINISHED", "start_time": 5000}
        return {"runs": [{"info": info, "data": {"tags": [{"key": "toolkit.job_id"}]}}] * 2}


def test_all_experiments_are_searched_and_a_limit_is_kept():
    (run,) = PagedServer().search("", limit=1)
    assert (run.run_id, run.started, run.ended, run.job) == ("r1", 5.0, None, None)


def test_a_server_that_is_away_ends_the_program_with_try_again(monkeypatch, capsys):
    def away(self, query, *, limit=None):
        raise TrackingError("connection refused")

    monkeypatch.setattr(MlflowRest, "search", away)
    assert mlflow_runs.main(["settle"]) == 75
    assert "tracking: connection refused" in capsys.readouterr().err


def test_what_the_program_prints_is_json(monkeypatch, capsys):
    monkeypatch.setattr(mlflow_runs, "MlflowRest", lambda: FakeMlflow.of(a_run("r1")))
    assert mlflow_runs.main(["list", "--limit", "5"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["run_id"] == "r1"


def test_every_run_of_a_job_is_tagged_and_no_other(monkeypatch, capsys):
    mlflow = FakeMlflow.of(a_run("r1"), a_run("r2"), a_run("r3", "8"))
    monkeypatch.setattr(mlflow_runs, "MlflowRest", lambda: mlflow)
    assert mlflow_runs.main(["tag", '{"7": {"cost_usd": "0.5"}}']) == 0
    assert [one["run_id"] for one in json.loads(capsys.readouterr().out)] == ["r1", "r2"]
    costs = {run.run_id: run.tags.get("cost_usd") for run in mlflow.runs.values()}
    assert costs == {"r1": "0.5", "r2": "0.5", "r3": None}


@pytest.mark.parametrize("odd", ["7", "[]", "{", '{"7\' OR 1=1": {}}', '{"7": 1}'])
def test_only_tags_of_plain_job_numbers_are_taken(odd):
    with pytest.raises(SystemExit):
        mlflow_runs.main(["tag", odd])


def test_the_experiments_are_asked_for_once_however_many_jobs_are_searched():
    asked = []

    class Counting(PagedServer):
        def _call(self, path, body):
            asked.append(path)
            return super()._call(path, body)

    server = Counting()
    assert [len(list(server.search(""))) for _ in range(3)] == [2, 2, 2]
    assert asked.count("experiments/search") == 2, "a page each"
