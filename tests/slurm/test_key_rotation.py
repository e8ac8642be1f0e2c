"""A new key for Slurm while a job runs: the real daemons take it without a stop."""

from __future__ import annotations

import json
import math
import time

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.instances import node
from tests.slurm.training_job import HOME
from tests.slurm.waiting import until
from toolkit.config import load
from toolkit.deploy import names
from toolkit.deploy.session import Clients

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
ON_FARM = ("--partition=batch", "--gpus-per-node=0", "--cpus-per-task=1", "--mem=100", "--time=20")
# slurmd -G fetches slurm.conf from slurmctld with a key, prints its GRES and ends. Without an
# answer it tries for ever. Its own /run keeps it from the socket of the node's slurmd.
FETCH = """
set -eu
folder=$(mktemp -d)
printf %s "$3" >"$folder/$5"
chmod 600 "$folder/$5"
code=0
export SLURM_CONF="$folder/slurm.conf"
unshare --mount sh -c 'mount -t tmpfs tmpfs /run/slurm && exec "$@"' sh \\
  timeout "$4" slurmd -G -N "$1" --conf-server "$2:6817" || code=$?
rm -r "$folder"
echo "exit code $code"
"""
TIMED_OUT = 124


@pytest.fixture(scope="module")
def secret(cluster):
    """A function that returns the text of the cluster's secret."""
    config = load(cluster.config)
    client = Clients(config).client("secretsmanager")
    return lambda: client.get_secret_value(SecretId=names.secret(config))["SecretString"]


def fetched_with(cluster, name: str, key: str, seconds: int) -> bool:
    """Return whether slurmctld gives a slurmd with this key its configuration."""
    head = str(load(cluster.config).network.head_address)
    file = "slurm.jwks" if key.startswith("{") else "slurm.key"
    argv = ("sh", "-c", FETCH, "sh", name, head, key, str(seconds), file)
    said = toolkit("local", "console", name, *argv).stdout
    code = int(said.rsplit("exit code ", 1)[1])
    assert code in {0, TIMED_OUT}, said
    return code == 0


def step_in(cluster, number: str) -> str:
    """Return the host name by a new step of the running job."""
    argv = ("srun", f"--jobid={number}", "--overlap", "hostname")
    return cluster.run("runuser", "-u", "ada", "--", *argv, timeout=300).strip()


def test_a_rotation_leaves_jobs_running_and_the_old_key_refused(cluster, secret):
    number = cluster.as_user(
        "sbatch", "--parsable", *ON_FARM, f"--chdir={HOME}", "--output=/dev/null",
        "--wrap=sleep 1200",
    ).strip()  # fmt: skip
    until("a job", lambda: cluster.job(number)["job_state"] == ["RUNNING"])
    first, start = cluster.job(number)["nodes"], cluster.job(number)["start_time"]
    old = secret()
    assert fetched_with(cluster, first, old, 120), "the check itself works"

    said = cluster.toolkit("secrets", "rotate", "--overlap", "5")
    assert "alone is valid" in said.stdout, said.stdout + said.stderr

    (key,) = json.loads(secret())["keys"]
    assert key["k"] not in said.stdout + said.stderr
    job = cluster.job(number)
    assert (job["job_state"], job["start_time"]) == (["RUNNING"], start)
    assert step_in(cluster, number) == first
    began = time.monotonic()
    assert fetched_with(cluster, first, secret(), 120)
    patience = max(15, 5 * math.ceil(time.monotonic() - began))
    assert not fetched_with(cluster, first, old, patience)
    later = cluster.run(
        "runuser", "-u", "ada", "--", "srun", *ON_FARM, f"--exclude={first}", f"--chdir={HOME}",
        "hostname", timeout=900,
    ).strip()  # fmt: skip
    assert later != first
    assert node(cluster, later)["instance_id"]
    cluster.as_user("scancel", number)
    states = until("its record", lambda: cluster.run("sacct", "-nXPo", "State", "-j", number))
    assert states.split()[0] in {"CANCELLED", "RUNNING"}, "slurmdbd answers"


def test_a_second_rotation_starts_from_the_list_of_keys(cluster, secret):
    before = json.loads(secret())["keys"]
    cluster.toolkit("secrets", "rotate", "--overlap", "0")
    after = json.loads(secret())["keys"]
    assert len(before) == len(after) == 1
    assert before[0]["kid"] != after[0]["kid"]
    cluster.run("scontrol", "ping")
    config = load(cluster.config)
    endpoint = str(config.aws.endpoint_url)
    fetch = (
        "/opt/slurm-toolkit/bin/slurm-key",
        "fetch",
        names.secret(config),
        "us-east-1",
        endpoint,
    )
    assert cluster.run(*fetch) == "unchanged\n", "the playbook finds the keys in place"
    # The login node of test_login_nodes.py has the new key too.
    as_ada = ("login", "--config", str(cluster.config), "--as", "ada")
    assert toolkit(*as_ada, "hostname").stdout == "login-1\n"
    assert "spot" in toolkit(*as_ada, "sinfo", "--noheader", "--format=%R").stdout.split()
    read_key = (*as_ada, "cat", "/etc/slurm/slurm.jwks")
    assert toolkit(*read_key, may_fail=True).returncode != 0


ANSWERS = (
    ("scontrol", "--all", "--details", "show", "nodes"),
    ("scontrol", "--all", "--details", "show", "jobs"),
    ("scontrol", "show", "config"),
    ("scontrol", "--all", "show", "partitions"),
    ("sacct", "--allusers", "--parsable2", "--starttime=now-1days", "--format=ALL"),
    ("sacctmgr", "--parsable2", "show", "instance"),
)


def test_slurm_tells_no_key_and_no_secrets_name(cluster, secret):
    (key,) = json.loads(secret())["keys"]
    hidden = (key["k"], names.secret(load(cluster.config)))
    for argv in ANSWERS:
        answer = cluster.run(*argv, timeout=120)
        assert len(answer) > 60, answer
        assert not [word for word in hidden if word in answer], argv
