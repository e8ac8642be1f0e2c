"""Each job's cost goes onto its MLflow runs."""

import json
import subprocess
import sys

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from toolkit.accounting import mlflow, mlflow_tags
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.errors import AccountingError


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


class FakeServer(mlflow_tags.Server):
    """Two experiments, listed one a page; three runs, two of job 7."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:5000")
        self.runs = {"r1": "7", "r2": "7", "r3": "8"}
        self.tags = {}

    def call(self, path, body):
        if path == "experiments/search":
            if body.get("page_token"):
                return {"experiments": [{"experiment_id": "1"}]}
            return {"experiments": [{"experiment_id": "0"}], "next_page_token": "more"}
        if path == "runs/search":
            assert body["experiment_ids"] == ["0", "1"]
            job = body["filter"].split("'")[1]
            return {"runs": [{"info": {"run_id": r}} for r, of in self.runs.items() if of == job]}
        assert path == "runs/set-tag"
        self.tags.setdefault(body["run_id"], {})[body["key"]] = body["value"]
        return {}


def test_every_run_of_a_job_is_tagged_and_no_other():
    server = FakeServer()
    assert mlflow_tags.tag(server, {"7": {"cost_usd": "0.5"}}) == ["r1", "r2"]
    assert server.tags == {"r1": {"cost_usd": "0.5"}, "r2": {"cost_usd": "0.5"}}


def test_a_job_costs_what_all_its_attempts_boots_and_idle_times_cost():
    tags = mlflow.job_tags(a_report([an_attempt(1), an_attempt(2, started=T0 + 5000)]))
    assert tags["7"]["cost_usd"] == "0.720000"
    assert tags["7"]["cost_usd_boot"] == "0.060000"
    assert tags["7"]["cost_usd_lost_work"] == "0.000000"


def test_only_plain_job_numbers_reach_a_query():
    assert mlflow.job_tags(a_report([an_attempt(job_id="7' OR 1=1")])) == {}


def test_the_head_runs_the_program_with_its_own_python():
    class Head:
        def run(self, argv, *, timeout=60):
            self.argv = argv
            return '["r1"]\n'

    head = Head()
    assert mlflow.record(head, a_report([an_attempt()])) == 1
    assert head.argv[:3] == ["/usr/bin/python3", "-I", "-c"]
    assert json.loads(head.argv[5])["7"]["cost_usd"] == "0.720000"
    compile(head.argv[3], "program", "exec")


def test_an_answer_that_is_no_json_is_an_error():
    class Head:
        def run(self, argv, *, timeout=60):
            return "Traceback"

    with pytest.raises(AccountingError):
        mlflow.record(Head(), a_report([an_attempt()]))


def test_the_program_needs_nothing_but_the_standard_library():
    done = subprocess.run(
        [sys.executable, "-I", "-S", mlflow_tags.__file__, "ftp://x", "{}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "not an HTTP address" in done.stderr
