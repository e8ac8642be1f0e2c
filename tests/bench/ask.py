"""What Slurm asks of both: the resume file, and the configuration each contestant has on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.bench import arena

if TYPE_CHECKING:
    from pathlib import Path

SPOT = {"type": "g5.xlarge", "capacity": "spot", "zone": "us-east-1a", "price": "0.4"}
ON_DEMAND = {"type": "g5.xlarge", "capacity": "on-demand", "zone": "us-east-1a", "price": "1.0"}
PEER_POOL = "queue1-dy-cr1"
OUR_POOL = "gpu"


@dataclass(frozen=True)
class Load:
    """So many jobs of so many nodes each, all in one call of ResumeProgram."""

    jobs: int
    nodes_each: int

    @property
    def nodes(self) -> int:
        return self.jobs * self.nodes_each

    def __str__(self) -> str:
        return f"{self.jobs:,} job{'s' * (self.jobs > 1)} x {self.nodes_each:,} nodes"

    def hostlist(self, pool: str) -> str:
        return f"{pool}-[1-{self.nodes}]"

    def names(self, pool: str) -> list[str]:
        return [f"{pool}-{number}" for number in range(1, self.nodes + 1)]

    def allocated(self, pool: str) -> dict[int, list[str]]:
        """The nodes of each job."""
        names, each = self.names(pool), self.nodes_each
        return {1000 + job: names[job * each : (job + 1) * each] for job in range(self.jobs)}

    def resume_file(self, pool: str) -> str:
        jobs = []
        for job in range(self.jobs):
            first = job * self.nodes_each + 1
            last = first + self.nodes_each - 1
            nodes = f"{pool}-{first}" if first == last else f"{pool}-[{first}-{last}]"
            jobs.append(
                {
                    "extra": None, "features": None, "job_id": 1000 + job, "nodes_alloc": nodes,
                    "nodes_resume": nodes, "oversubscribe": "NO", "partition": "spot",
                    "reservation": None,
                }
            )  # fmt: skip
        return json.dumps({"all_nodes_resume": self.hostlist(pool), "jobs": jobs})


def write_ours(root: Path, load: Load, subnet: str, bin_dir: Path, *offerings: object) -> None:
    (root / "state").mkdir()
    (root / "logs").mkdir()
    pool = {
        "nodes": load.hostlist(OUR_POOL), "partition": "spot", "launch_template": "demo-gpu",
        "subnets": {"us-east-1a": subnet}, "offerings": offerings or (ON_DEMAND,),
    }  # fmt: skip
    burst = {
        "version": 1, "cluster": "demo", "region": "us-east-1", "endpoint_url": None,
        "bucket": "demo", "slurm": {"bin": str(bin_dir), "resume_timeout": 2100},
        "pools": {OUR_POOL: pool},
        "instance_rate": {"burst": arena.RAISED["RunInstances"][0],
                          "per_second": arena.RAISED["RunInstances"][1]},
    }  # fmt: skip
    (root / "burst.json").write_text(json.dumps(burst))
    (root / "resume.json").write_text(load.resume_file(OUR_POOL))


def write_peer(root: Path, load: Load) -> None:
    """As its cookbook writes them: defaults everywhere, all-or-nothing, private DNS on."""
    compute = {"Api": "run-instances", "CapacityType": "on-demand", "Instances": [
        {"InstanceType": "g5.xlarge"}]}  # fmt: skip
    (root / "fleet.json").write_text(json.dumps({"queue1": {"cr1": compute}}))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f%z")
    (root / "heartbeat").write_text(f"{now}\n")
    settings = {
        "cluster_name": "demo", "region": "us-east-1", "dynamodb_table": "names",
        "hosted_zone": "Z1", "dns_domain": "demo.pcluster", "head_node_private_ip": "10.0.0.10",
        "head_node_hostname": "head", "fleet_config_file": str(root / "fleet.json"),
        "clustermgtd_heartbeat_file_path": str(root / "heartbeat"),
        "logging_config": "/nonexistent", "instance_id": "i-head",
    }  # fmt: skip
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    (root / "resume.conf").write_text(f"[slurm_resume]\n{lines}")
    (root / "resume.json").write_text(load.resume_file(PEER_POOL))
