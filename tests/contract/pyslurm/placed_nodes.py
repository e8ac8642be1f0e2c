"""A slurmctld with cloud nodes on loopback, whose places reconcile tells.

It runs in a tree of `tree.py`. The nodes are slurmds of this computer, which ResumeProgram starts.
They say that they have just booted (`-b`), because slurmctld waits for that. Then jobs
of some sizes say which nodes they got.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplugins.config import burst
from slurmplugins.model.hostlist import expand
from slurmplugins.model.instance import Assignment, Instance, InstanceState, Lifecycle
from slurmplugins.reconciler import placement
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.logger import Log
from tests.contract.pyslurm.live_cluster import ADDRESS, ETC, HEAD, STATE, prepare, run, wait_for

if TYPE_CHECKING:
    from slurmplugins.config.burst import BurstConfig

NODES = expand("c-[01-12]")
PORT = 17000
PLACES = {
    "c-01": ("nn-row1", "nn-rack1"),
    "c-02": ("nn-row1", "nn-rack2"),
    "c-03": ("nn-row1", "nn-rack1"),
    "c-04": ("nn-row2", "nn-rack3"),
}
RESUME = Path("/run/resume")
RESUMED = Path("/run/resumed")
CONF = f"""ClusterName=demo
SlurmctldHost={HEAD}({ADDRESS})
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
StateSaveLocation={STATE}
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdSpoolDir=/var/lib/slurm/%n
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerParameters=sched_interval=1,bf_interval=1
SuspendProgram=/bin/true
ResumeProgram={RESUME}
ResumeTimeout=120
SuspendTime=1800
SuspendTimeout=5
"""
BURST = {
    "version": 1, "cluster": "demo", "region": "us-east-1", "bucket": "demo",
    "pools": {"c": {
        "nodes": "c-[01-12]", "partition": "main", "launch_template": "demo-c",
        "subnets": {"us-east-1a": "subnet-a"}, "in_topology": True,
        "offerings": [{"type": "p5.48xlarge", "capacity": "spot", "zone": "us-east-1a"}],
    }},
}  # fmt: skip
PARTITION = "PartitionName=main Nodes=c-[01-12] Default=YES OverSubscribe=EXCLUSIVE"


@dataclass(frozen=True)
class Cloud:
    """EC2's answer to DescribeInstanceTopology."""

    places: dict[str, tuple[str, ...]]

    def network_nodes(self, types: list[str]) -> dict[str, tuple[str, ...]]:
        assert types == ["p5.48xlarge"]
        return self.places


@dataclass(frozen=True)
class Head:
    """The parts of the engine, and of a pass's snapshot, that placing nodes takes."""

    slurm: ScontrolSlurm
    cloud: Cloud
    log: Log
    config: BurstConfig
    nodes: dict[str, Any]
    instances: list[Instance]


def start(topology: str) -> None:
    """Start slurmctld, with this topology.yaml unless it is empty."""
    prepare()
    shutil.chown("/run/slurmctld", "root", "root")
    RESUME.write_text(
        f"#!/bin/bash\nfor node in $(scontrol show hostnames $1); do\n"
        f"  echo $node >>{RESUMED}\n  slurmd -b -N $node\ndone\n"
    )
    RESUME.chmod(0o755)
    STATE.mkdir()
    nodes = [
        f"NodeName={name} NodeAddr={ADDRESS} Port={PORT + number} CPUs=4 RealMemory=500 State=CLOUD"
        for number, name in enumerate(NODES)
    ]
    partition = PARTITION + (" Topology=ec2" if topology else "")
    (ETC / "slurm.conf").write_text(CONF + "\n".join([*nodes, partition, ""]))
    if topology:
        (ETC / "topology.yaml").write_text(topology)
    subprocess.Popen(("slurmctld", "-D"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(("scontrol", "ping"), "is UP")


def nodes_of_job(size: int) -> str:
    """Run a job of this size to its end; return its nodes."""
    argv = ("sbatch", "--parsable", "--output=/dev/null", f"--nodes={size}", "--wrap=sleep 4")
    job = run(*argv).strip()
    wait_for(("squeue", "--noheader", "--jobs", job, "--format=%T"), "RUNNING")
    nodes = run("squeue", "--noheader", "--jobs", job, "--format=%N").strip()
    wait_for(("scontrol", "show", "job", job), "JobState=COMPLETED")
    wait_for(("sinfo", "--noheader", "--nodes", nodes, "--format=%t"), "idle")
    return nodes


def place() -> None:
    """Tell the places of nodes that are up, as reconcile does."""
    slurm = ScontrolSlurm(SystemRunner(), "/usr/bin")
    ids = {name: f"i-{name}" for name in PLACES}
    slurm.assign([Assignment(name, ids[name], ADDRESS, "p5.48xlarge") for name in NODES[:4]])
    head = Head(
        slurm,
        Cloud({ids[name]: nodes for name, nodes in PLACES.items()}),
        Log(lambda line: sys.stderr.write(line + "\n"), SystemClock()),
        burst.parse(BURST),
        {node.name: node for node in slurm.nodes()},
        [_instance(name, ids[name]) for name in NODES[:4]],
    )
    placement.place_nodes(head, head)  # type: ignore[arg-type] - the parts that it takes


def _instance(node: Any, instance_id: str) -> Instance:
    return Instance(
        instance_id, InstanceState.RUNNING, "compute", node, "c", "main", "a", "p5.48xlarge",
        "us-east-1a", Lifecycle.SPOT, ADDRESS, "1", 0.0,
    )  # fmt: skip


def switches() -> dict[str, str]:
    """Return the nodes below each switch, as slurmctld has them."""
    rows = [
        dict(word.split("=", 1) for word in line.split())
        for line in run("scontrol", "show", "topology", "ec2").splitlines()
        if line.startswith("SwitchName=")
    ]
    return {row["SwitchName"]: row["Nodes"] for row in rows}


def main() -> None:
    start(sys.argv[1])
    answer: dict[str, Any] = {"first": nodes_of_job(4)}
    place()
    if sys.argv[1]:
        answer["switches"] = switches()
    answer["jobs"] = {size: nodes_of_job(size) for size in (2, 3, 4, 5)}
    answer["resumed"] = RESUMED.read_text().split()
    run("scontrol", "update", "nodename=c-01", "state=power_down_force")
    wait_for(("sinfo", "--noheader", "--nodes=c-01", "--format=%t"), "idle~")
    answer["topology of c-01"] = next(
        node.topology for node in ScontrolSlurm(SystemRunner(), "/usr/bin").nodes(["c-01"])
    )
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
