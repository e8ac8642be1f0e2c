"""A researcher's way in, on the real head node: a real sshd, real accounts, real jobs."""

from __future__ import annotations

import os
import subprocess
from threading import Thread

import pytest

from slurmplugins.head import read_commands
from tests.slurm.conftest import new_key, toolkit
from tests.slurm.ssh import REFUSED, computer, environment
from tests.slurm.waiting import until
from toolkit.config import load
from toolkit.deploy import names
from toolkit.deploy.head import RUNNING, Head
from toolkit.deploy.session import Clients

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
KEYS = "/etc/ssh/slurm_toolkit_keys"
HOLD = ("--hold", "--partition=spot", "--output=/dev/null", "--wrap=true")
# Accepts one connection, and prints the uid of the process at its other end. The kernel's table may
# lack a line while it changes.
OWNER_OF_CALLER = """
import socket, time
server = socket.create_server(("127.0.0.1", 7777))
caller, (_, port) = server.accept()
owners = []
while not owners:
    rows = [line.split() for line in open("/proc/net/tcp")]
    ends = (f":{port:04X}", ":1E61")
    owners = [row[7] for row in rows if (row[1][-5:], row[2][-5:]) == ends]
    time.sleep(0.05)
print(*owners)
"""
JOB_TOKEN = "/opt/slurm-toolkit/bin/slurm-job-token"


@pytest.fixture(scope="module")
def ssh(cluster, tmp_path_factory):
    return computer(cluster.config, tmp_path_factory.mktemp("ssh"))


@pytest.fixture(scope="module")
def ada(state):
    return state / "ada"


def test_ada_submits_and_sees_her_job_over_ssh_and_is_not_root(cluster, ssh, ada):
    assert ssh.run("id", "-u", key=ada).stdout == "2001\n"
    submitted = ssh.run("sbatch", "--parsable", *HOLD, key=ada)
    job = submitted.stdout.strip()
    assert job.isdecimal(), submitted
    try:
        listed = ssh.run("squeue", "--noheader", "--format=%i:%u", key=ada)
        assert f"{job}:ada" in listed.stdout.split()
    finally:
        cluster.run("scancel", job)


@pytest.mark.parametrize(
    "command",
    [
        ("sudo", "-n", "id"),
        ("cat", "/etc/slurm/slurm.key"),
        ("cat", "/etc/shadow"),
        ("sh", "-c", f"'echo key >> {KEYS}/ada'"),
        ("touch", f"{KEYS}/grace"),
    ],
    ids=" ".join,
)
def test_ada_can_not_do_what_root_can(ssh, ada, command):
    answer = ssh.run(*command, key=ada)
    assert answer.returncode in {1, 2}
    assert any(word in answer.stderr for word in ("Permission denied", "password is required"))


def test_who_has_no_key_of_her_own_is_refused(ssh, ada):
    for user, key in (("ada", None), ("grace", ada), ("root", ada), ("slurm", ada)):
        answer = ssh.run("id", user=user, key=key)
        assert answer.returncode == 255, (user, answer)
        assert REFUSED in answer.stderr


def test_a_key_that_a_user_adds_in_her_home_opens_nothing(cluster, ssh, tmp_path):
    line = new_key(tmp_path / "own")
    cluster.as_user("mkdir", "-p", "-m", "700", "/shared/home/ada/.ssh")
    path = cluster.write("/shared/home/ada/.ssh/authorized_keys", f"{line}\n")
    cluster.as_user("chmod", "600", path)
    assert REFUSED in ssh.run("id", key=tmp_path / "own").stderr


def test_sshd_listens_on_loopback_alone(cluster):
    listeners = cluster.run("ss", "-Hltn", "sport = :22").split("\n")
    addresses = {line.split()[3] for line in listeners if line}
    assert addresses
    assert addresses <= {"127.0.0.1:22", "[::1]:22"}


@pytest.fixture
def open_input():
    """Yield an input that stays open.

    At its end, ssh would close the connection.
    """
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


def test_a_forwarded_connection_is_the_users_own(cluster, ssh, ada, open_input):
    """Prove that a rule by uid holds for it."""
    answers = []
    server = Thread(
        target=lambda: answers.append(cluster.run("python3", "-c", OWNER_OF_CALLER)), daemon=True
    )
    server.start()

    def connect():
        subprocess.run(
            ssh.argv("-W", "127.0.0.1:7777", "judge", key=ada),
            stdin=open_input,
            capture_output=True,
            timeout=60,
            check=False,
            env=environment(),
        )
        return answers

    until("the connection", connect)
    assert answers == ["2001\n"]


def test_a_forwarding_back_is_refused(ssh, ada):
    options = ("-o", "ExitOnForwardFailure=yes", "-N", "-R", "7778:127.0.0.1:1", "judge")
    done = subprocess.run(
        ssh.argv(*options, key=ada),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(),
    )
    assert done.returncode == 255
    assert "remote port forwarding failed" in done.stderr


def test_login_as_opens_a_session_of_that_user_and_of_no_other(cluster):
    assert cluster.toolkit("login", "--as", "ada", "id", "-un").stdout == "ada\n"
    assert "no user 'root'" in cluster.toolkit("login", "--as", "root", may_fail=True).stderr
    for name in ("root", "slurm", "nobody", "", "ada\nroot", "../ada"):
        answer = cluster.toolkit(
            "run", "--", "/opt/slurm-toolkit/bin/slurm-login", name, "id", may_fail=True
        )
        assert answer.returncode == 1, name
        assert "none of the cluster's users" in answer.stderr


def test_a_node_of_an_older_image_runs_jobs_and_is_not_drained(cluster):
    """Take away the program behind slurmd's hooks, as in an older image."""
    submit = ("sbatch", "--parsable", "--partition=spot", "--output=/dev/null")
    job = cluster.as_user(*submit, "--wrap=sleep 900").strip()
    until("the job's start", lambda: cluster.job(job)["job_state"] == ["RUNNING"])
    node = cluster.job(job)["nodes"]
    toolkit("local", "console", node, "mv", JOB_TOKEN, f"{JOB_TOKEN}.aside")
    try:
        cluster.run("scancel", job)
        later = cluster.as_user(*submit, f"--nodelist={node}", "--wrap=srun true").strip()
        until("the next job's end", lambda: cluster.job(later)["job_state"] == ["COMPLETED"])
        assert cluster.job(later)["restart_cnt"] == 0
        (state,) = cluster.run("sinfo", "--noheader", f"--nodes={node}", "--format=%T").split()[:1]
        assert "drain" not in state
    finally:
        toolkit("local", "console", node, "mv", f"{JOB_TOKEN}.aside", JOB_TOKEN)


def test_the_document_for_readers_runs_its_list_and_nothing_else(cluster):
    """Send two commands by it, one of them of the list."""
    config = load(cluster.config)
    clients = Clients(config)
    head = Head(clients, config)
    ssm = clients.client("ssm")

    def result(*argv):
        word = read_commands.encode(argv)
        command = ssm.send_command(
            InstanceIds=[head.instance_id],
            DocumentName=names.read_document(config),
            Parameters={"command": [word]},
        )["Command"]["CommandId"]
        return until(
            "the command ends",
            lambda: (
                (done := head.invocation(command))
                and done["Status"] not in RUNNING
                and (done["Status"], done["StandardErrorContent"])
            ),
        )

    assert result("scontrol", "ping")[0] == "Success"
    status, error = result("cat", "/etc/slurm/slurm.key")
    assert status == "Failed"
    assert "slurm-read: not a reader's command: 'cat /etc/slurm/slurm.key'" in error
