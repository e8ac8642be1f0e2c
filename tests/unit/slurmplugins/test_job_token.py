"""slurm-job-token, as slurmd runs it before and after a job, and the TaskProlog."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest

from slurmplugins import job_token
from slurmplugins.config import paths
from slurmplugins.node.credential_broker import ADDRESS, PATH, PORT

HOOKS = Path(__file__).parents[3] / "ansible/roles/slurmctld/files/hooks"
HOOK, TASK_PROLOG = HOOKS / "slurm-job-token", HOOKS / "slurm-task-prolog"
NODE = {
    "cluster": "demo", "region": "us-east-1", "head_address": "10.0.0.1", "secret_id": "k",
    "bucket": "b", "shared": {"dns": "d", "mount_name": "m", "path": "/shared"},
}  # fmt: skip


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with these folders; returns a function that runs the program."""
    monkeypatch.setattr(paths, "JOB_TOKENS", tmp_path / "jobs")
    monkeypatch.setattr(paths, "LOGS", tmp_path)
    monkeypatch.setattr(paths, "DECISIONS", tmp_path / "decisions.jsonl")
    file = tmp_path / "node.json"
    monkeypatch.setattr(job_token.node_config.load, "__defaults__", (file,))

    def run(context="prolog_slurmd", role="arn:aws:iam::1:role/jobs", **changes):
        file.write_text(json.dumps({**NODE, "job_role": role}))
        facts = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.getuid())} | changes
        for name, value in {**facts, "SLURM_SCRIPT_CONTEXT": context}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            job_token.main()
        assert ended.value.code == 0
        return tmp_path / "jobs" / "7"

    return run


def test_the_prolog_writes_a_token_and_the_epilog_removes_it(node):
    folder = node()
    record = json.loads((folder / "record.json").read_text())
    assert record["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert (folder / "token").exists()
    assert not node("epilog_slurmd").exists()


def test_a_cluster_without_data_in_s3_writes_no_token(node):
    assert not node(role=None).exists()


@pytest.mark.parametrize(
    "changes", [{"SLURM_JOB_UID": "4294967290"}, {"SLURM_JOB_UID": "x"}, {"SLURM_JOB_ACCOUNT": "*"}]
)
def test_a_job_whose_facts_can_not_be_starts_without_a_token(node, tmp_path, changes):
    """Slurmd drains a node whose Prolog fails."""
    assert not node(**changes).exists()
    assert "job_token_failed" in (tmp_path / "job-token.log").read_text()


def test_the_task_prolog_names_the_address_and_the_file_where_there_is_a_token(tmp_path):
    script = tmp_path / "task-prolog"
    script.write_text(TASK_PROLOG.read_text().replace("/run/slurm-toolkit/jobs", str(tmp_path)))
    (tmp_path / "7").mkdir()

    def run(**more):
        environment = {"SLURM_JOB_ID": "7", "PATH": os.environ["PATH"], **more}
        done = subprocess.run(
            ["/bin/sh", script], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    address = f"http://{ADDRESS}:{PORT}{PATH}"
    assert run() == run(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:9/own") == []
    assert run(AWS_CONTAINER_CREDENTIALS_FULL_URI=address) == [
        "unset AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "unset AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    ], "of the job that this one was submitted from"
    (tmp_path / "7" / "token").write_text("7.x")
    assert run() == [
        f"export AWS_CONTAINER_CREDENTIALS_FULL_URI={address}",
        f"export AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={tmp_path}/7/token",
    ]


def test_a_node_whose_image_lacks_the_program_runs_jobs_too(tmp_path):
    """Slurmd gets slurm.conf at once, and its program with the next image."""
    script, program = tmp_path / "hook", tmp_path / "slurm-job-token"
    script.write_text(HOOK.read_text().replace("/opt/slurm-toolkit/bin", str(tmp_path)))
    assert subprocess.run(["/bin/sh", script], check=False).returncode == 0
    program.write_text(f"#!/bin/sh\necho $SLURM_JOB_ID >{tmp_path}/ran\nexit 3\n")
    program.chmod(0o755)
    done = subprocess.run(["/bin/sh", script], env={"SLURM_JOB_ID": "7"}, check=False)
    assert done.returncode == 3
    assert (tmp_path / "ran").read_text() == "7\n"
