"""slurm-job-token, as slurmd runs it before and after a job, and the TaskProlog."""

from __future__ import annotations

import errno
import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest

from slurmplugins import job_token
from slurmplugins.config import paths
from slurmplugins.node import job_tokens
from slurmplugins.node.broker_server import ADDRESS, PORT
from slurmplugins.node.credential_broker import PATH

HOOKS = Path(__file__).parents[3] / "ansible/roles/slurmctld/files/hooks"
HOOK, TASK_PROLOG = HOOKS / "slurm-job-token", HOOKS / "slurm-task-prolog"
NODE = {
    "cluster": "demo", "region": "us-east-1", "head_address": "10.0.0.1", "secret_id": "k",
    "bucket": "b", "shared": {"dns": "d", "mount_name": "m", "path": "/shared"},
}  # fmt: skip

JOB_VARIABLES = ("SLURM_HET_JOB_ID", "SLURM_JOB_ACCOUNT")


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
        for name in JOB_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        facts = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.getuid())} | changes
        for name, value in {**facts, "SLURM_SCRIPT_CONTEXT": context}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            job_token.main()
        assert ended.value.code == 0
        return paths.JOB_TOKENS / "7"

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


def test_a_requeue_onto_the_same_node_has_a_new_token(node):
    token = (node() / "token").read_text()
    again = (node() / "token").read_text()
    assert job_tokens.identify(paths.JOB_TOKENS, token) is None
    assert job_tokens.identify(paths.JOB_TOKENS, again).job == 7


def test_an_array_task_has_a_token_of_its_own(node):
    """Slurm gives each array task a job id of its own."""
    node(SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="1")
    folder = node(SLURM_JOB_ID="8", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="2").parent
    assert sorted(path.name for path in folder.iterdir()) == ["7", "8"]
    node("epilog_slurmd", SLURM_JOB_ID="8", SLURM_ARRAY_JOB_ID="7")
    assert [path.name for path in folder.iterdir()] == ["7"]


def test_a_het_job_has_its_token_where_its_tasks_look(node):
    folder = node(SLURM_JOB_ID="9", SLURM_HET_JOB_ID="7")
    assert (folder / "token").exists()
    assert not node("epilog_slurmd", SLURM_JOB_ID="9", SLURM_HET_JOB_ID="7").exists()


def test_a_job_starts_without_a_token_where_neither_token_nor_log_can_be_written(node, monkeypatch):
    """Slurmd drains a node whose Prolog fails."""
    for name in ("JOB_TOKENS", "LOGS"):
        monkeypatch.setattr(paths, name, Path("/proc/self") / name)
    assert not node().exists()
    assert not node("epilog_slurmd").exists()


@pytest.mark.parametrize("written", [0, 1])
def test_a_job_on_a_full_disk_starts_without_a_token_also_without_an_older_one(
    node, monkeypatch, written
):
    assert (node() / "token").exists()
    write, room = job_tokens.write_atomically, [True] * written

    def full(path, content, *, mode):
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        room.pop()
        write(path, content, mode=mode)

    monkeypatch.setattr(job_tokens, "write_atomically", full)
    assert not (node() / "token").exists()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), MemoryError(), RecursionError()])
def test_no_error_at_all_makes_the_prolog_fail(node, tmp_path, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(job_tokens, "grant", fails)
    node()
    assert type(error).__name__ in (tmp_path / "job-token.log").read_text()


def test_a_failure_of_the_log_does_not_make_the_prolog_fail(node, monkeypatch):
    monkeypatch.setattr(job_token.program, "open_log", lambda _: 1 / 0)
    assert not node(SLURM_JOB_UID="x").exists()


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
