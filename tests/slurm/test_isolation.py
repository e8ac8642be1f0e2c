"""Users and jobs apart on one node: files, processes, no way in beside Slurm; open ports."""

from __future__ import annotations

import json

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.instances import node
from tests.slurm.ports import CLOSED, OPEN, connect_argv, group_id, head_address
from tests.slurm.training_job import HOME
from tests.slurm.waiting import until
from toolkit.config import load
from toolkit.deploy.session import Clients

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SHARED_NODE = (
    "--partition=batch",
    "--gpus-per-node=0",
    "--cpus-per-task=1",
    "--mem=100",
    "--time=20",
)
UNOPENED = 9999  # a port that no rule of the stack opens
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/scratch")
ON_COMMAND_LINE, IN_ENVIRONMENT = "ada-argument-4711", "ada-variable-4711"
FORGED = "line-of-ada-4711"
OWNER = """
import sys, time
from pathlib import Path
folders = sys.argv[2:]
for folder in folders:
    Path(folder, "of-ada").write_text("hers")
Path("isolation.ready").write_text("x")
time.sleep(900)
"""
# What another job on the same node sees: files, command lines, environments, ports of sshd.
OTHER = """
import json, os, socket, sys
from pathlib import Path
folders, addresses = json.loads(sys.argv[1])
texts = {"cmdline": "", "environ": ""}
owners = set()
for process in Path("/proc").glob("[0-9]*"):
    try:
        owners.add(process.stat().st_uid)
    except OSError:
        continue
    for name in texts:
        try:
            texts[name] += (process / name).read_text(errors="replace")
        except OSError:
            pass
ports = {}
for address in addresses:
    try:
        socket.create_connection((address, 22), timeout=10).close()
        ports[address] = "open"
    except OSError as error:
        ports[address] = type(error).__name__
print(json.dumps({
    "files": sorted(str(path) for folder in folders for path in Path(folder).iterdir()),
    "owners": sorted(owners), "ports": ports, "uid": os.getuid(), **texts,
}))
"""


@pytest.fixture(scope="module")
def neighbours(cluster):
    """Ada's job on two nodes, with other jobs on the first."""
    cluster.as_user("rm", "-f", f"{HOME}/isolation.ready")
    script = cluster.write(f"{HOME}/isolation.py", OWNER)
    number = cluster.as_user(
        "env", f"OF_ADA={IN_ENVIRONMENT}", "sbatch", "--parsable", *SHARED_NODE, "--nodes=2",
        f"--chdir={HOME}", f"--output={HOME}/isolation.out",
        f"--wrap=logger {FORGED}; exec python3 {script} {ON_COMMAND_LINE} {' '.join(FOLDERS)}",
    ).strip()  # fmt: skip
    until("ada's files", lambda: cluster.run("find", HOME, "-name", "isolation.ready"))
    names = cluster.run("scontrol", "show", "hostnames", cluster.job(number)["nodes"]).split()
    yield Neighbours(cluster, number, names)
    cluster.as_user("scancel", number)


class Neighbours:
    def __init__(self, cluster, number: str, names: list[str]) -> None:
        self.cluster, self.number, self.names = cluster, number, names
        self.addresses = [node(cluster, name)["address"] for name in names]

    def sight_of(self, user: str) -> dict:
        """Return the view of a new job of the user."""
        words = json.dumps([FOLDERS, self.addresses])
        said = self.cluster.run(
            "runuser", "-u", user, "--", "srun", *SHARED_NODE, f"--nodelist={self.names[0]}",
            f"--chdir=/shared/home/{user}", "python3", "-c", OTHER, words, timeout=900,
        )  # fmt: skip
        return json.loads(said)

    def on_node(self, *argv: str) -> str:
        """Run a command on the first node, outside of jobs."""
        return toolkit("local", "console", self.names[0], *argv).stdout


@pytest.fixture(scope="module")
def sight(neighbours):
    return neighbours.sight_of("grace")


def test_another_users_job_on_the_node_sees_no_file_of_adas(sight):
    assert sight["files"] == []


def test_another_users_job_sees_neither_command_lines_nor_environments_of_adas(sight):
    assert ON_COMMAND_LINE not in sight["cmdline"]
    assert IN_ENVIRONMENT not in sight["environ"]
    assert sight["owners"] == [sight["uid"]]


def test_no_sshd_answers_on_a_node(neighbours, sight):
    assert set(sight["ports"].values()) == {"ConnectionRefusedError"}, sight["ports"]
    states = neighbours.on_node("sh", "-c", "systemctl is-enabled ssh.service ssh.socket || true")
    assert states.split() == ["masked", "masked"]


@pytest.fixture
def listener(cluster):
    """A server on the head, on a port that no rule opens."""
    server = ("python3", "-m", "http.server", str(UNOPENED))
    cluster.run("systemd-run", "--quiet", "--collect", "--unit=test-listener", *server)
    here = connect_argv("127.0.0.1", UNOPENED)
    until("the listener", lambda: cluster.run(*here).strip() == OPEN)
    yield UNOPENED
    cluster.run("systemctl", "stop", "test-listener.service")


def test_a_node_reaches_those_ports_of_the_head_that_a_rule_opens(neighbours, listener):
    """Open a port and close it again."""
    cluster = neighbours.cluster
    head = head_address(cluster)

    def port(number):
        return neighbours.on_node(*connect_argv(head, number)).strip()

    # MLflow listens a while after the deploy.
    for number in (6817, 6819, 5000):
        until(f"port {number}", lambda number=number: port(number) == OPEN)
    assert port(listener) == CLOSED
    ec2 = Clients(load(cluster.config)).client("ec2")
    rule = {"IpProtocol": "tcp", "FromPort": listener, "ToPort": listener}
    rule["UserIdGroupPairs"] = [{"GroupId": group_id(cluster, "compute")}]
    change = {"GroupId": group_id(cluster, "head"), "IpPermissions": [rule]}
    ec2.authorize_security_group_ingress(**change)
    until("an open port", lambda: port(listener) == OPEN, seconds=60)
    ec2.revoke_security_group_ingress(**change)
    until("a closed port", lambda: port(listener) == CLOSED, seconds=60)


def test_nothing_updates_packages_under_jobs(neighbours):
    states = neighbours.on_node(
        "sh", "-c",
        "systemctl is-enabled apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service"
        " || true; cat /etc/needrestart/conf.d/slurm-toolkit.conf",
    )  # fmt: skip
    assert states.split()[:3] == ["masked"] * 3
    assert "$nrconf{restart} = 'l';" in states


def logs_of(cluster, target: str) -> list[dict]:
    """Return the lines that CloudWatch has of a node or an instance.

    There is none before the shipper's first call.
    """
    answer = cluster.toolkit("logs", target, "--json", may_fail=True)
    assert answer.returncode == 0 or "logs-absent" in answer.stderr, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_a_job_writes_no_line_into_the_logs_of_its_node(neighbours):
    """Forge a line from a job, which runs inside slurmd's unit.

    The shipper reads the journal in order. A later line of a service shows how far it is.
    """
    assert FORGED in neighbours.on_node("journalctl", "--output=cat", f"MESSAGE={FORGED}")
    neighbours.on_node("systemctl", "restart", "slurm-node-ident.service")

    def later_lines() -> list[dict]:
        """Return all lines, once the restarted service's is among them."""
        lines = logs_of(neighbours.cluster, neighbours.names[0])
        starts = [
            line for line in lines
            if line["unit"] == "slurm-node-ident" and "program_started" in line["text"]
        ]  # fmt: skip
        return lines if len(starts) > 1 else []

    lines = until("the line of the restarted service", later_lines)
    assert not [line for line in lines if FORGED in line["text"]]


def test_the_users_next_job_on_the_node_finds_her_scratch_alone(neighbours):
    assert neighbours.sight_of("ada")["files"] == ["/scratch/of-ada"]


def test_a_jobs_files_end_with_it(neighbours):
    # Debian's slurmd adds the node's name (MULTIPLE_SLURMD in read_jcconf.c), SchedMD's does not.
    folder = "/var/lib/slurm-toolkit/job-mounts"
    named = ("find", folder, "-maxdepth", "2", "-name", neighbours.number)
    (mounts,) = neighbours.on_node(*named).split()
    assert neighbours.on_node("find", mounts, "-name", "of-ada").split()
    neighbours.cluster.as_user("scancel", neighbours.number)
    until(
        "the end of ada's files",
        lambda: "no such" in neighbours.on_node(
            "sh", "-c", f"test -e {mounts} || echo no such"
        ),
    )  # fmt: skip
    assert neighbours.sight_of("ada")["files"] == ["/scratch/of-ada"]
    left = neighbours.on_node("sh", "-c", "find /tmp /var/tmp /dev/shm -name of-ada")
    assert left == ""
