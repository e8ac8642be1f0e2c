"""The preflight of a join against a real slurmctld with a wrong configuration.

It runs on the head node, beside the cluster's own and on another port. The path of the socket by
which auth/slurm signs is fixed in Slurm 24.11. So this one has a folder of its own at that path,
and its clients run in its mount namespace.
"""

from __future__ import annotations

import pytest

from tests.golden.join.sides import FITTING
from tests.slurm.waiting import until
from toolkit.join.preflight import check_site
from toolkit.join.preflight.connections import path_mtu
from toolkit.join.site import read_site
from toolkit.output import PlainReporter

pytestmark = [pytest.mark.machines, pytest.mark.timeout(600, func_only=True)]
FOLDER = "/run/rack-site"
SLURM_CONF = f"{FOLDER}/slurm.conf"
SOCKETS = f"{FOLDER}/sockets"  # is /run/slurmctld to this slurmctld
UNIT = "rack-site"
WRONG = f"""\
ClusterName=rack
SlurmctldHost=localhost
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/slurm
CredType=cred/slurm
SlurmUser=slurm
StateSaveLocation={FOLDER}/state
SlurmctldPidFile={FOLDER}/state/slurmctld.pid
SlurmctldLogFile={FOLDER}/state/slurmctld.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldParameters=cloud_dns
TopologyPlugin=topology/tree
MaxNodeCount=4
JobRequeue=0
MailProg=/bin/true
NodeName=rack[01-02] NodeAddr=127.0.0.1 Port=[16820-16821] CPUs=2 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES
"""
EXPECTED = {
    "cloud-dns", "configless", "gres-types", "idle-on-suspend", "job-requeue", "no-accounting",
    "node-table", "partition-of-all-nodes", "proctrack", "requeue-exit", "select-memory",
    "srun-ports", "topology-missing",
}  # fmt: skip


class SiteOnHead:
    """The other slurmctld on the head node, by commands of root."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster
        pid = cluster.run("systemctl", "show", "--property=MainPID", "--value", UNIT).strip()
        self.enter = ["nsenter", f"--target={pid}", "--mount"]

    def run(self, argv, *, timeout=60, stdin=b""):
        assert not stdin, "the head takes no standard input"
        words = [*self.enter, "/usr/bin/env", f"SLURM_CONF={SLURM_CONF}", *argv]
        return self.cluster.head.output(words, timeout=timeout).stdout


@pytest.fixture
def site(cluster):
    """A slurmctld of its own key, with faults."""
    files = {"slurm.conf": WRONG, "topology.conf": "SwitchName=top Nodes=rack[01-02]\n"}
    cluster.run("install", "-d", "-o", "slurm", f"{FOLDER}", f"{FOLDER}/state", SOCKETS)
    for name, text in files.items():
        cluster.run("sh", "-c", 'printf %s "$2" > "$1"', "sh", f"{FOLDER}/{name}", text)
    key = f"{FOLDER}/slurm.key"
    cluster.run("dd", "if=/dev/urandom", f"of={key}", "bs=1024", "count=1")
    cluster.run("install", "-o", "slurm", "-m", "600", key, key + ".own")
    cluster.run("mv", key + ".own", key)
    cluster.run("systemd-run", f"--unit={UNIT}", "--uid=slurm", f"--setenv=SLURM_CONF={SLURM_CONF}",
                f"--property=BindPaths={SOCKETS}:/run/slurmctld",
                "slurmctld", "-D", "-f", SLURM_CONF)  # fmt: skip
    runner = SiteOnHead(cluster)
    until("the site's slurmctld", lambda: "is UP" in ping(runner))
    yield runner
    cluster.run("systemctl", "stop", UNIT)
    cluster.run("rm", "-rf", FOLDER)


def ping(runner):
    return runner.run(["/usr/bin/sh", "-c", "scontrol ping || true"])


def test_a_wrong_site_is_told_what_can_not_work(site):
    check = check_site(site, read_site(site, SLURM_CONF), FITTING, PlainReporter())
    assert check.site == "rack"
    assert not check.ready
    assert {item.slug for item in check.findings} >= EXPECTED
    places = {item.slug: item.origin for item in check.findings}
    line = WRONG.splitlines().index("PartitionName=batch Nodes=ALL Default=YES") + 1
    assert places["partition-of-all-nodes"] == f"{SLURM_CONF}:{line}"
    assert places["topology-missing"] == f"{FOLDER}/topology.conf"
    questions = [item.question for item in check.unanswered]
    assert "the path through the tunnel" in questions
    assert not [text for text in questions if text.startswith(("scontrol", "squeue", "ss ", "ip "))]


def test_a_packet_that_may_not_be_split_is_measured(site):
    assert path_mtu(site, "site", "127.0.0.1").bytes == 9001
