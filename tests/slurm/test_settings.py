"""An apply of new settings: a user leaves, and a partition loses its priority.

One apply is for both, because an apply takes a minute of CPU. test_login_nodes.py brings the user
back.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.restarts import is_unreached
from tests.slurm.settings import edit, remove_zoe
from tests.slurm.ssh import REFUSED, computer, environment
from tests.slurm.test_requeues import ONE_NODE, preempt
from tests.slurm.training_job import slow
from tests.slurm.waiting import PATIENCE, until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SUBMIT = ("sbatch", "--parsable", "--partition=spot", "--output=/dev/null")
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


@dataclass(frozen=True)
class Departure:
    """An apply that left zoe out, and what she had running."""

    job: str
    session: subprocess.Popen
    output: str


@pytest.fixture(scope="module")
def ssh(cluster, tmp_path_factory):
    return computer(cluster.config, tmp_path_factory.mktemp("ssh"))


def submitted(ssh, key) -> str:
    """Submit a job as zoe; return its number, "" while slurmctld restarts."""
    done = ssh.run(*SUBMIT, "--wrap='sleep 900'", user="zoe", key=key)
    assert done.returncode == 0 or is_unreached(done), done
    return done.stdout.strip()


@pytest.fixture(scope="module")
def departure(cluster, ssh, state):
    """An apply of a cluster.yaml without zoe, and without the partition's priority.

    She has a job, a session and a program then.
    """
    key = state / "zoe"
    job = until("zoe's job", lambda: submitted(ssh, key))
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

        def change(settings):
            remove_zoe(settings)
            del settings["partitions"]["urgent"]["priority"]

        with cluster.undisturbed("accounts"):
            edit(cluster.config, change)
            output = cluster.toolkit("apply").stdout
        yield Departure(job, session, output)
    finally:
        session.kill()
        cluster.run("sh", "-c", f"scancel {job} || true")


def limits(cluster, user: str) -> str:
    """Return limit and comment of a user's only association."""
    where = ("show", "assoc", f"user={user}", "format=maxsubmitjobs,comment")
    return cluster.run("sacctmgr", "-n", "-P", *where).strip()


def test_a_user_who_leaves_loses_access_on_the_head(cluster, ssh, state, departure):
    departure.session.wait(PATIENCE)
    assert cluster.run("sh", "-c", "ps -U 2077 -o args= || true") == ""
    assert cluster.run("getent", "shadow", "zoe").split(":")[7] == "1"
    passwd = cluster.run("getent", "passwd", "zoe").strip()
    assert passwd.split(":")[2::4] == ["2077", "/usr/sbin/nologin"]
    assert limits(cluster, "zoe") == "0|toolkit:left toolkit:made"
    assert REFUSED in ssh.run("id", user="zoe", key=state / "zoe").stderr


def test_a_user_who_leaves_keeps_her_jobs_and_submits_no_others(cluster, departure):
    assert "zoe has left, and 1 job of zoe go on" in departure.output
    node = cluster.job(departure.job)["nodes"]
    passwd = ("local", "console", node, "getent", "passwd", "zoe")
    until("the node's lock", lambda: "nologin" in toolkit(*passwd).stdout)
    as_zoe = ("local", "console", node, "runuser", "-u", "zoe", "--")

    def refusal() -> str | None:
        submission = toolkit(*as_zoe, *SUBMIT, "--wrap=true", may_fail=True)
        assert submission.returncode != 0, submission
        return None if is_unreached(submission) else submission.stdout + submission.stderr

    assert "limit" in until("slurmctld's answer", refusal)
    assert cluster.job(departure.job)["job_state"] == ["RUNNING"]


def test_preemption_by_qos_works_after_an_apply(cluster, departure):
    """Preempt by QOS, now that the partition has no priority.

    Slurm has one preemption type at a time. slurmctld reads the type at its start only.
    """
    with cluster.undisturbed("accounts"):
        for change in (
            ("modify", "qos", "normal", "set", "gracetime=120"),
            ("add", "qos", "urgent", "priority=100", "preempt=normal"),
            ("modify", "user", "ada", "set", "qos+=urgent"),
        ):
            cluster.run("sacctmgr", "--immediate", *change)

    job = slow(cluster, *ONE_NODE)
    preempt(job, "--qos=urgent")
    cluster.as_user("scancel", job.number)
