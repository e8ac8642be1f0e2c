"""A researcher's way in, on the real head node: a real sshd, real accounts, real jobs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from slurmplugins.head import read_commands
from tests.slurm.conftest import TOOLKIT, new_key, toolkit
from tests.slurm.waiting import PATIENCE, until
from toolkit.config import load
from toolkit.deploy import names
from toolkit.deploy.head import RUNNING, Head
from toolkit.deploy.session import Clients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
REFUSED = "Permission denied (publickey)"
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


# It has a new pid all the time: a look into /proc may miss it.
FORKS = """
import os, time
null = os.open(os.devnull, os.O_RDWR)
for stream in range(3):
    os.dup2(null, stream)
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
"""
JOB_TOKEN = "/opt/slurm-toolkit/bin/slurm-job-token"


def environment() -> dict[str, str]:
    """Return an environment in which ssh's ProxyCommand finds the toolkit."""
    return {**os.environ, "PATH": f"{TOOLKIT.parent}:{os.environ['PATH']}"}


@dataclass(frozen=True)
class Ssh:
    """A person's computer: an ssh configuration and keys."""

    folder: Path

    def argv(self, *words: str, user: str = "ada", key: Path | None = None) -> list[str]:
        """Return ssh's argv; without a key, the person has none."""
        identity = ["-i", str(key)] if key else ["-i", "/dev/null"]
        options = ("BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes")
        return [
            *("ssh", "-F", str(self.folder / "config"), *identity, "-l", user),
            *(word for option in options for word in ("-o", option)),
            *("-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", *words),
        ]

    def run(self, *words: str, **who) -> subprocess.CompletedProcess[str]:
        """Run a command on the head node over ssh."""
        return subprocess.run(
            self.argv("judge", *words, **who),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment(),
        )


@pytest.fixture(scope="module")
def ssh(cluster, tmp_path_factory):
    """A computer with what `toolkit login --ssh-config` prints."""
    folder = tmp_path_factory.mktemp("ssh")
    text = cluster.toolkit("login", "--ssh-config", "--as", "ada").stdout
    (folder / "config").write_text(text)
    known_hosts = text.splitlines()[-1].removeprefix("# ")
    (folder / "known_hosts").write_text(f"{known_hosts}\n")
    return Ssh(folder)


@pytest.fixture(scope="module")
def ada(state):
    return state / "ada"


def without(cluster, path: Path, name: str) -> Path:
    """Write cluster.yaml without a user."""
    settings = YAML(typ="rt").load(cluster.config.read_text())
    settings["users"] = [user for user in settings["users"] if user["name"] != name]
    with path.open("w") as file:
        YAML(typ="rt").dump(settings, file)
    return path


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


def limits(cluster, user: str) -> str:
    """Return limit and comment of a user's only association."""
    where = ("show", "assoc", f"user={user}", "format=maxsubmitjobs,comment")
    return cluster.run("sacctmgr", "-n", "-P", *where).strip()


def test_a_user_who_leaves_loses_access_and_keeps_her_jobs(cluster, ssh, state, tmp_path):
    """Leave her out of cluster.yaml.

    The lane's next apply brings her back, and test_login_nodes.py looks for her.
    """
    key = state / "zoe"
    submit = ("sbatch", "--parsable", "--partition=spot", "--output=/dev/null")
    job = ssh.run(*submit, "--wrap='sleep 900'", user="zoe", key=key).stdout.strip()
    until("the job's start", lambda: cluster.job(job)["job_state"] == ["RUNNING"])
    session = subprocess.Popen(
        ssh.argv("judge", "sleep", "901", user="zoe", key=key),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    try:
        until("her session", lambda: "sleep 901" in cluster.run("ps", "-A", "-o", "args="))
        cluster.run("runuser", "-u", "zoe", "--", "setsid", "-f", "python3", "-c", FORKS)
        config = without(cluster, tmp_path / "without-zoe.yaml", "zoe")
        output = toolkit("apply", "--config", str(config)).stdout
        assert "zoe has left, and 1 job of zoe go on" in output
        session.wait(PATIENCE)
        assert_locked(cluster, ssh, key)
        assert_locked_on_node(cluster.job(job)["nodes"], submit)
        assert cluster.job(job)["job_state"] == ["RUNNING"]
    finally:
        session.kill()
        cluster.run("scancel", job)


def assert_locked(cluster, ssh, key: Path) -> None:
    """Look for anything that zoe could still use on the head."""
    assert cluster.run("sh", "-c", "ps -U 2077 -o args= || true") == ""
    assert cluster.run("getent", "shadow", "zoe").split(":")[7] == "1"
    assert cluster.run("getent", "passwd", "zoe").split(":")[2::4] == [
        "2077",
        "/usr/sbin/nologin\n",
    ]
    assert limits(cluster, "zoe") == "0|toolkit:left"
    assert REFUSED in ssh.run("id", user="zoe", key=key).stderr


def assert_locked_on_node(node: str, submit: Sequence[str]) -> None:
    """Wait for the node's lock, and try to submit there."""
    passwd = ("local", "console", node, "getent", "passwd", "zoe")
    until("the node's lock", lambda: "nologin" in toolkit(*passwd).stdout)
    as_zoe = ("local", "console", node, "runuser", "-u", "zoe", "--")
    submission = toolkit(*as_zoe, *submit, "--wrap=true", may_fail=True)
    assert submission.returncode != 0, submission


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
