"""`toolkit runs` asks the head node.

It opens a run folder as the folder's owner.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fakes.mlflow import a_run
from toolkit.commands import runs as runs_command
from toolkit.errors import HeadCommandFailed
from toolkit.runs.compare import compare
from toolkit.runs.errors import ReplayRefused, RunNotFound, TrackingAway

CONFIG = str(Path(__file__).parents[3] / "examples" / "local.yaml")
TAGS = {
    "toolkit.job_id": "7",
    "toolkit.run_dir": "/shared/home/ada/runs/7",
    "toolkit.seed": "1",
    "cost_usd": "0.50",
}
FOLDER = {
    "run_dir": "/shared/home/ada/runs/7",
    "facts": {"key": "k"},
    "attempts": [
        {
            "attempt": 0,
            "started_at": 100.0,
            "cause": "finished",
            "step_start": 0,
            "step_end": 9,
            "nodes": ["gpu-001"],
        }
    ],
    "goodput": {"seconds": {"useful": 9.0, "save": 1.0}, "waiting": 0.0, "cost_usd": {}},
    "submission": {"job_id": "7"},
}
REPLAY = {
    "argv": ["sbatch", "job.sbatch", "two words"],
    "environment": {"PATH": "/bin", "NCCL_DEBUG": "INFO"},
    "directory": "/shared/home/ada",
    "missing": [],
    "differs": [],
    "unknown": ["a variable"],
    "job_id": "99",
}


class Head:
    """A head node with runs of the jobs 7 and 8.

    Only the run folder of job 7 exists. Its owner is ada.
    """

    def __init__(self) -> None:
        self.calls = []
        self.away = False
        self.owner = "ada 2001\n"
        self.refusal = None
        self.runs = [
            a_run("r7", "7", tags=TAGS, params={"rate": "0.1"}, metrics={"loss": 0.5}),
            a_run("r8", "8", params={"rate": "0.2"}, metrics={"loss": 0.25}, status="KILLED"),
        ]

    def run(self, argv, *, timeout=60):
        self.calls.append(list(argv))
        if argv[0].endswith("slurm-runs"):
            if self.away:
                raise HeadCommandFailed("away", returncode=75, stderr="tracking: refused")
            if argv[1] == "find":
                assert argv[2] == "--"
                return json.dumps(
                    [asdict(r) for r in self.runs if r.tags["toolkit.job_id"] == argv[3]]
                )
            if argv[1] == "settle":
                return '[{"job": 8, "run_id": "r8", "state": "TIMEOUT", "status": "FAILED"}]'
            return json.dumps([asdict(run) for run in self.runs])
        if argv[0] == "stat":
            if argv[-1] != FOLDER["run_dir"]:
                raise HeadCommandFailed("no such file", returncode=1)
            return self.owner
        assert argv[:4] == ["runuser", "-u", "ada", "--"]
        if "summary" in argv:
            return json.dumps(FOLDER)
        if self.refusal:
            raise HeadCommandFailed("1", returncode=1, stdout=json.dumps(self.refusal))
        return json.dumps(REPLAY)


@pytest.fixture
def head(as_head):
    return as_head(Head())


def runs(*words):
    return CliRunner().invoke(runs_command.command, [words[0], "--config", CONFIG, *words[1:]])


def test_a_run_folder_of_root_is_neither_read_nor_replayed(head):
    head.owner = "root 0\n"
    result = runs("show", "7", "--json")
    assert json.loads(result.stdout)["folder"] is None, result.output
    assert "the run folder with its submission" in str(runs("replay", "7").exception)
    assert not [argv for argv in head.calls if argv[0] == "runuser"]


def test_list_has_one_line_for_each_run(head):
    lines = runs("list").stdout.splitlines()
    assert lines[0].split()[:3] == ["JOB", "NAME", "USER"]
    assert "0.50" in lines[1]
    assert "KILLED" in lines[2]
    assert json.loads(runs("list", "--json").stdout)[0]["run_id"] == "r7"


def test_show_prints_parameters_attempts_and_times_of_a_run(head):
    output = runs("show", "7").stdout
    for words in ("rate  0.1", "toolkit.seed", "steps 0 to 9  on gpu-001", "90.0 %", "0.50"):
        assert words in output
    assert json.loads(runs("show", "--json", "7").stdout)["folder"]["facts"] == {"key": "k"}


def test_show_prints_a_run_without_a_run_folder_from_mlflow(head):
    assert "its run folder is gone" in runs("show", "8").stdout


def test_show_reads_the_run_folder_if_mlflow_is_unreachable(head):
    head.away = True
    assert "gpu-001" in runs("show", FOLDER["run_dir"]).stdout
    assert isinstance(runs("show", "7").exception, TrackingAway)


def test_an_unknown_run_is_an_error_with_a_next_step(head):
    error = runs("show", "9").exception
    assert isinstance(error, RunNotFound)
    assert "toolkit runs list" in error.next_step


def test_compare_shows_parameters_and_metrics_that_differ(head):
    output = runs("compare", "7", "8").stdout
    assert "rate" in output
    assert "loss" in output
    assert "name" not in output


def test_compare_counts_equal_values_and_lists_the_others():
    tags = {"toolkit.seed": "1", "toolkit.job_id": "7"}
    first = a_run("r1", tags=tags, params={"a": "1", "b": "2"}, metrics={"loss": 1.0})
    second = a_run("r2", tags=tags | {"toolkit.job_id": "8"}, params={"a": "1"}, metrics={})
    comparison = compare(first, second)
    assert comparison.same == 2
    assert [(d.kind, d.name, d.left, d.right) for d in comparison.differences] == [
        ("parameter", "b", "2", "-"),
        ("metric", "loss", "1", "-"),
    ]


def test_a_replay_is_submitted_as_the_owner_of_the_run_folder(head):
    done = runs("replay", "7")
    assert (done.stdout, done.stderr) == ("submitted: job 99\n", "not known: a variable\n")
    assert head.calls[-1][-2:] == ["replay", FOLDER["run_dir"]]


def test_a_dry_replay_prints_a_shell_command(head):
    output = runs("replay", "--dry-run", "7").stdout
    assert output == "cd /shared/home/ada && env NCCL_DEBUG=INFO sbatch job.sbatch 'two words'\n"
    assert head.calls[-1][-1] == "--dry-run"


def test_a_refused_replay_names_every_reason(head):
    head.refusal = REPLAY | {"missing": ["the script is gone"], "differs": ["other packages"]}
    error = runs("replay", "7").exception
    assert isinstance(error, ReplayRefused)
    assert "the script is gone; other packages" in error.message


def test_settle_prints_the_mlflow_runs_that_it_would_end(head):
    assert "TIMEOUT" in runs("settle", "--dry-run").stdout
    assert head.calls[-1][-2:] == ["settle", "--dry-run"]
