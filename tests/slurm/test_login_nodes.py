"""A login node on a real machine: users work there, with sackd, and have no login on the head.

The login node stays: files of the tier's second part rotate the key, lose the head and destroy the
cluster with it.
"""

from __future__ import annotations

import json

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.settings import add_zoe, edit
from tests.slurm.ssh import computer
from tests.slurm.test_settings import limits
from tests.slurm.training_job import PYTHON
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
HOLD = ("--hold", "--partition=spot", "--output=/dev/null", "--wrap=true")
TIMED_OUT = 28  # curl's: a security group drops packets
METADATA = "http://169.254.169.254/latest/api/token"
# Exit code 7: nobody listens there, or the kernel refuses it.
REACH = ("curl", "--silent", "--show-error", "--max-time", "5", "--output", "/dev/null")
NEW_RUN = """
from mlflow.tracking import MlflowClient
from toolkit.training.io.cluster_info import site_facts
print(MlflowClient(site_facts()["mlflow_tracking_uri"]).create_run("0").info.user_id)
"""


@pytest.fixture(scope="module")
def config(cluster, state):
    """The cluster's configuration, with a login node that is up.

    test_settings.py let zoe leave, and she is a user again.
    """
    path = cluster.config

    def change(settings):
        settings["login_nodes"] = {"count": 1, "max_user_share": 0.25}
        add_zoe(settings, state)

    with cluster.undisturbed("accounts"):
        edit(path, change)
        toolkit("deploy", "--config", str(path))
    until(
        "the login node's report",
        lambda: toolkit("status", "--config", str(path), may_fail=True).returncode == 0,
        seconds=300,
    )
    return path


@pytest.fixture(scope="module")
def ssh(config, tmp_path_factory):
    return computer(config, tmp_path_factory.mktemp("ssh"))


@pytest.fixture(scope="module")
def ada(state):
    return state / "ada"


def login(config, *words, may_fail=False):
    return toolkit("login", "--config", str(config), *words, may_fail=may_fail)


def test_slurms_commands_work_over_ssh_on_the_login_node(cluster, ssh, ada):
    assert ssh.run("hostname", key=ada).stdout == "login-1\n"
    assert "spot" in ssh.run("sinfo", "--noheader", "--format=%R", key=ada).stdout.split()
    job = ssh.run("sbatch", "--parsable", *HOLD, key=ada).stdout.strip()
    assert job.isdecimal()
    assert f"{job}:ada" in ssh.run("squeue", "-h", "--format=%i:%u", key=ada).stdout.split()
    assert ssh.run("scancel", job, key=ada).returncode == 0
    until(
        "slurmdbd's record",
        lambda: "CANCELLED" in ssh.run("sacct", "-nXj", job, "-o", "state", key=ada).stdout,
    )
    assert cluster.job(job)["user_name"] == "ada"


def test_srun_runs_a_step_on_a_node_and_brings_its_output_back(ssh, ada):
    answer = ssh.run("srun", "--partition=spot", "--mem=100", "hostname", key=ada)
    assert answer.stdout.startswith("gpu-"), answer


def test_login_as_goes_to_the_login_node_and_login_as_root_to_the_head_on_demand(config):
    assert login(config, "--as", "ada", "id", "-un").stdout == "ada\n"
    assert login(config, "--as", "ada", "hostname").stdout == "login-1\n"
    assert login(config, "hostname").stdout == "login-1\n"
    assert login(config, "--head", "systemctl", "is-active", "slurmctld").stdout == "active\n"


def test_users_have_no_login_on_the_head(cluster, config):
    assert "no login on the head" in login(config, "--head", "--as", "ada", may_fail=True).stderr
    argv = ("run", "--config", str(config), "--", "/opt/slurm-toolkit/bin/slurm-login", "ada", "id")
    assert "none of the cluster's users" in toolkit(*argv, may_fail=True).stderr
    assert cluster.run("ss", "-Hltn", "sport = :22") == ""


@pytest.mark.parametrize(
    "command",
    [("sudo", "-n", "id"), ("cat", "/etc/slurm/slurm.key"), ("cat", "/etc/slurm/slurm.jwks")],
    ids=" ".join,
)
def test_ada_is_not_root_and_reads_no_key(ssh, ada, command):
    answer = ssh.run(*command, key=ada)
    assert answer.returncode == 1
    words = ("Permission denied", "password is required", "No such file")
    assert any(word in answer.stderr for word in words)


def test_sackd_alone_has_the_key(config):
    script = "stat -c '%a %U' /etc/slurm/slurm.key /etc/slurm/slurm.jwks 2>/dev/null; true"
    assert login(config, "--", "sh", "-c", script).stdout == "600 slurm\n"


def test_a_user_reaches_neither_the_role_nor_the_database(ssh, ada):
    refused = ssh.run(*REACH, "-X", "PUT", METADATA, key=ada)
    assert refused.returncode == 7, refused
    assert ssh.run(*REACH, "telnet://head:3306", key=ada).returncode == TIMED_OUT
    assert ssh.run("ls", "/run/mysqld/mysqld.sock", key=ada).returncode == 2


def test_users_see_no_processes_of_others(ssh, ada):
    owners = set(ssh.run("ps", "-A", "-o", "user=", key=ada).stdout.split())
    assert owners == {"ada"}


def test_a_users_processes_are_in_a_slice_with_her_share(config, ssh, ada):
    assert "/user-2001.slice" in ssh.run("cat", "/proc/self/cgroup", key=ada).stdout
    names = ("MemoryHigh", "CPUQuotaPerSecUSec")
    show = [word for name in names for word in ("-p", name)]
    text = login(config, "--", "systemctl", "show", *show, "user-2001.slice").stdout
    assert "infinity" not in text, text


def test_a_run_of_mlflow_made_on_the_login_node_is_its_users(ssh, ada):
    script = "/shared/home/ada/new_run.py"
    assert ssh.run(f"cat > {script} <<'END'\n{NEW_RUN}END", key=ada).returncode == 0
    answer = ssh.run(*PYTHON, script, key=ada)
    assert answer.stdout.splitlines()[-1:] == ["ada"], answer


def test_who_comes_back_has_her_uid_and_her_access_again(cluster, ssh, state):
    """test_lost_head.py lets her leave once more."""
    assert ssh.run("id", "-un", user="zoe", key=state / "zoe").stdout == "zoe\n"
    assert ssh.run("id", "-u", user="zoe", key=state / "zoe").stdout == "2077\n"
    assert limits(cluster, "zoe") == "|toolkit:made"


def test_status_names_a_login_node_that_does_not_work(config):
    login(config, "systemctl", "stop", "sackd.service")
    try:
        status = json.loads(
            until(
                "its report",
                lambda: (
                    (answer := toolkit("status", "--config", str(config), "--json", may_fail=True))
                    and "sackd is" in answer.stdout
                    and answer.stdout
                ),
                seconds=300,
            )
        )
        assert status["login_nodes"]["login-1"].startswith("does not work: sackd is ")
        assert not status["healthy"]
    finally:
        login(config, "systemctl", "start", "sackd.service")
