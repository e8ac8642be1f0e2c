"""Each job's cost goes onto its MLflow runs."""

import json

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from toolkit.accounting import mlflow
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.runs import queries
from toolkit.runs.errors import RunsError


def a_report(attempts):
    return build(
        cluster="demo",
        attempts=attempts,
        instances=[an_instance()],
        shapes={"i-1": G5},
        book=a_book(),
        window=Window(T0, T0 + 7200),
        now=T0 + 7200,
    )


def test_a_jobs_cost_includes_all_of_its_attempts_boots_and_idle_times():
    tags = mlflow.job_tags(a_report([an_attempt(1), an_attempt(2, started=T0 + 5000)]))
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
    assert mlflow.record(head, a_report([an_attempt()])) == 1
    program, subcommand, tags = head.argv
    assert (program, subcommand) == (queries.PROGRAM, "tag")
    assert json.loads(tags)["7"]["cost_usd"] == "0.720000"


def test_an_answer_that_is_no_json_is_an_error():
    class Head:
        def run(self, argv, *, timeout=60):
            return "Traceback"

    with pytest.raises(RunsError):
        mlflow.record(Head(), a_report([an_attempt()]))
