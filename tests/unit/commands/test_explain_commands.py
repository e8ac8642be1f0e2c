"""`toolkit why`, `nodes`, `jobs` and `reconcile --plan`.

Each sends one command to the head node.
"""

import json
from pathlib import Path

import pytest

from slurmplugins.head import report
from slurmplugins.head.report import HeadReport, InstanceReport, JobReport, NodeReport
from toolkit import cli
from toolkit.deploy.head import Head

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"
NOW = 1_795_000_000.0
REPORT = HeadReport(
    at=NOW,
    cluster="demo",
    node_source="pyslurm 25.11.2",
    nodes=(
        NodeReport("gpu-001", ("IDLE",), "", "gpu"),
        NodeReport("gpu-002", ("IDLE", "POWERED_DOWN"), pool="gpu"),
    ),
    machines=(
        InstanceReport("i-1", "gpu-001", "gpu", "compute", "running", "g5.xlarge", "us-east-1a",
                    "spot", "0.4", launched_at=NOW - 90),
    ),
    jobs=(JobReport(7, "evil\x1b[31m", "ada", states=("PENDING",), reason="Priority",
                  submitted_at=NOW - 90),),
)  # fmt: skip
PLAN = {
    "note": "",
    "remarks": ["i-9 is odd"],
    "actions": [{"action": "Terminate", "node": "gpu-001", "instance": "i-1", "why": "orphan"}],
}


@pytest.fixture(autouse=True)
def sent_commands(tmp_path, monkeypatch):
    """The commands sent to the head node.

    The head node answers with the plan to `--plan`, and with the facts to others.
    """
    credentials = tmp_path / "credentials"
    credentials.write_text("[local]\naws_access_key_id=x\naws_secret_access_key=x\n")
    text = EXAMPLE.read_text()
    config = tmp_path / "cluster.yaml"
    lines = [
        f"  credentials_file: {credentials}" if "credentials_file" in line else line
        for line in text.splitlines()
    ]
    config.write_text("\n".join(lines))
    monkeypatch.setenv("TOOLKIT_CONFIG", str(config))
    sent = []

    def run(_head, argv, *, timeout=60):
        del timeout
        sent.append(list(argv))
        plan = argv[-1] == "--plan"
        return json.dumps(PLAN if plan else report.to_json(REPORT))

    monkeypatch.setattr(Head, "run", run)
    return sent


def test_nodes_shows_the_instance_of_each_node(capsys):
    assert cli.run(["nodes"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == [
        "gpu-001", "idle", "i-1", "g5.xlarge", "us-east-1a", "spot", "0.4000", "1", "m",
    ]  # fmt: skip
    assert "1 nodes at rest" in out


def test_nodes_as_json_lists_every_node(capsys):
    assert cli.run(["nodes", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["node"] for row in answer["nodes"]] == ["gpu-001", "gpu-002"]
    assert answer["source"] == "pyslurm 25.11.2"


def test_jobs_escapes_control_characters(capsys):
    assert cli.run(["jobs"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "evil?[31m" in out


@pytest.mark.parametrize("target", ["7", "7.batch", "7_[0-3%2]"])
def test_why_requests_the_job_from_the_head_node(sent_commands, capsys, target):
    assert cli.run(["why", target]) == 0
    assert sent_commands[0][-2:] == ["job", "7"]
    out = capsys.readouterr().out
    assert "pending for 1 m: jobs of higher priority start first" in out
    assert "\x1b" not in out


def test_why_requests_the_array_task_from_the_head_node(sent_commands, capsys):
    assert cli.run(["why", "7_3"]) == 0
    assert sent_commands[0][-2:] == ["job", "7_3"]
    assert "Slurm knows no job 7_3" in capsys.readouterr().out


def test_why_prints_a_node_as_json(sent_commands, capsys):
    assert cli.run(["why", "gpu-002", "--json"]) == 0
    assert sent_commands[0][-2:] == ["node", "gpu-002"]
    assert (
        json.loads(capsys.readouterr().out)["verdict"]
        == "powered down: it has no instance, and needs none"
    )


@pytest.mark.parametrize("target", ["$(id)", "7_", "7_3_4", "_3", "9" * 40, "٣", "7_$(id)"])
def test_why_refuses_a_target_that_is_neither_job_nor_node(sent_commands, target):
    assert cli.run(["why", target]) == 2
    assert sent_commands == []


def test_reconcile_plan_prints_a_table(sent_commands, capsys):
    assert cli.run(["reconcile", "--plan"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["Terminate", "gpu-001", "i-1", "orphan"]
    assert "note: i-9 is odd" in out
    assert sent_commands[0][-1] == "--plan"


def test_reconcile_plan_prints_the_heads_json(capsys):
    assert cli.run(["reconcile", "--plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == PLAN


def test_reconcile_without_plan_is_refused():
    assert cli.run(["reconcile"]) == 2


def test_commands_run_as_user_slurm_on_the_head_node(sent_commands):
    for command in (["nodes"], ["jobs"], ["why", "7"], ["reconcile", "--plan"]):
        cli.run(command)
    assert all(argv[1:4] == ["-u", "slurm", "--"] for argv in sent_commands)
