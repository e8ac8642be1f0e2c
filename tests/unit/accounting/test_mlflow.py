"""Each job's cost goes onto its MLflow runs."""

import json

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from toolkit.accounting import mlflow
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.report import Key
from toolkit.runs import queries
from toolkit.runs.errors import RunsError


def a_report(attempts, *, since=T0, until=T0 + 7200, instances=None):
    instances = instances or [an_instance()]
    return build(
        cluster="demo",
        attempts=attempts,
        instances=instances,
        shapes={instance.instance_id: G5 for instance in instances},
        book=a_book(),
        window=Window(since, until),
        now=T0 + 9000,
    )


def test_a_jobs_cost_includes_all_of_its_attempts_boots_and_idle_times():
    tags = mlflow.job_tags(
        a_report(
            [an_attempt(1, restarts=0), an_attempt(2, restarts=1, started=T0 + 5000, ended=None)]
        )
    )
    assert tags["7"]["cost_usd"] == "0.720000"
    assert tags["7"]["cost_usd_boot"] == "0.060000"
    assert tags["7"]["cost_usd_lost_work"] == "0.000000"


def test_a_job_id_that_is_no_number_gets_no_tags():
    assert mlflow.job_tags(a_report([an_attempt(job_id="7' OR 1=1")])) == {}


def test_record_sends_the_tags_of_each_job_to_the_head_node():
    class Head:
        def run(self, argv, *, timeout=60):
            self.argv = argv
            return '[{"job": 7, "run_id": "r1"}]\n'

    head = Head()
    report = a_report([an_attempt(restarts=0)])
    assert mlflow.record(head, report) == mlflow.Recorded(runs=1, partial_jobs=0)
    program, subcommand, tags = head.argv
    assert (program, subcommand) == (queries.PROGRAM, "tag")
    assert json.loads(tags)["7"]["cost_usd"] == "0.720000"


def test_an_answer_that_is_no_json_is_an_error():
    class Head:
        def run(self, argv, *, timeout=60):
            return "Traceback"

    with pytest.raises(RunsError):
        mlflow.record(Head(), a_report([an_attempt(restarts=0)]))


@pytest.mark.parametrize(
    ("attempts", "window"),
    [
        ([an_attempt(restarts=0)], {"since": T0 + 1}),  # a part of the boot lies before
        ([an_attempt(restarts=0)], {"since": T0 + 700}),
        ([an_attempt(restarts=0)], {"until": T0 + 7199}),  # a part of the idle tail lies behind
        ([an_attempt(restarts=1)], {}),  # the first attempt is not here
        ([an_attempt(1, restarts=0), an_attempt(2, restarts=2)], {}),
        # The first attempt ran on an instance that had ended before.
        ([an_attempt(1, restarts=0, started=T0 - 500), an_attempt(2, restarts=1)], {}),
        ([an_attempt(1, restarts=0), an_attempt(2, restarts=0)], {}),  # two jobs with one id
        ([an_attempt(restarts=None)], {}),  # nobody knows of an earlier attempt
    ],
)
def test_a_part_of_a_jobs_cost_overwrites_no_tag(attempts, window):
    report = a_report(attempts, **window)
    assert report.net > 0
    assert mlflow.job_tags(report) == {}
    assert mlflow.record(None, report).partial_jobs == len(report.groups([Key.JOB]))


def test_a_running_jobs_cost_so_far_is_recorded():
    report = a_report(
        [an_attempt(restarts=0, ended=None)], until=T0 + 9000, instances=[an_instance(ended=None)]
    )
    assert mlflow.job_tags(report)["7"]["cost_usd"] == "0.900000"


def test_without_slurms_count_of_restarts_a_report_since_the_heads_launch_is_whole():
    head = an_instance("i-head", pool="head", node="head", launched=T0 - 50, ended=None)
    instances = [head, an_instance()]
    attempts = [an_attempt(restarts=None)]
    tags = mlflow.job_tags(a_report(attempts, since=T0 - 50, until=T0 + 9000, instances=instances))
    assert tags["7"]["cost_usd"] == "0.720000"
    assert mlflow.job_tags(a_report(attempts, until=T0 + 9000, instances=instances)) == {}
