"""The requests of Slurm, and each contestant's configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.bench import simulated_aws
from toolkit.config.model import Slurm

if TYPE_CHECKING:
    from pathlib import Path

SPOT = {"type": "g5.xlarge", "capacity": "spot", "zone": "us-east-1a", "price": "0.4"}
ON_DEMAND = {"type": "g5.xlarge", "capacity": "on-demand", "zone": "us-east-1a", "price": "1.0"}
PEER_POOL = "queue1-dy-cr1"
OUR_POOL = "gpu"
ZONE = "us-east-1a"

TOLD_TIMEOUT = 2100
"""ResumeTimeout of an account that starts 4,000 nodes slowly. EC2 alone may take 25 minutes."""

DEFAULT_TIMEOUT = Slurm.model_fields["resume_timeout"].default


@dataclass(frozen=True)
class Market:
    """The offerings that the pool buys.

    Several types make a fleet, for both contestants.
    """

    capacity: str = "on-demand"
    types: tuple[str, ...] = ("g5.xlarge",)

    @property
    def fleet(self) -> bool:
        return len(self.types) > 1

    def offerings(self) -> list[dict[str, str]]:
        """Return our pool's offerings, the cheapest first."""
        return [
            {"type": name, "capacity": self.capacity, "zone": ZONE, "price": f"1.{rank}"}
            for rank, name in enumerate(self.types)
        ]

    def resource(self, subnet: str) -> dict[str, object]:
        """Return the peer's compute resource, as its CLI writes it.

        CreateFleet is for several types, RunInstances for one.
        """
        return {
            "Api": "create-fleet" if self.fleet else "run-instances",
            "CapacityType": self.capacity,
            "Instances": [{"InstanceType": name} for name in self.types],
            **({"AllocationStrategy": "lowest-price"} if self.fleet else {}),
            "Networking": {"SubnetIds": [subnet]},
        }

    def __str__(self) -> str:
        return f"a fleet of {len(self.types)} {self.capacity} types" if self.fleet else ""


@dataclass(frozen=True)
class Load:
    """Jobs of so many nodes each, in one call of ResumeProgram.

    With `raised`, AWS has raised the account's rate.
    """

    jobs: int
    nodes_each: int
    market: Market = Market()
    raised: bool = True

    @property
    def nodes(self) -> int:
        return self.jobs * self.nodes_each

    def __str__(self) -> str:
        shape = f"{self.jobs:,} job{'s' * (self.jobs > 1)} x {self.nodes_each:,} nodes"
        account = "" if self.raised else "an account at the published rate"
        return ", ".join(filter(None, [shape, str(self.market), account]))

    def hostlist(self, pool: str) -> str:
        return f"{pool}-[1-{self.nodes}]"

    def names(self, pool: str) -> list[str]:
        return [f"{pool}-{number}" for number in range(1, self.nodes + 1)]

    def allocated(self, pool: str) -> dict[int, list[str]]:
        """Return the nodes of each job."""
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


def write_ours(
    root: Path, load: Load, subnet: str, bin_dir: Path, *offerings: object, told: bool = True
) -> None:
    """Write our configuration.

    With `told`, it has the account's rate and a long ResumeTimeout. Else it has cluster.yaml's
    defaults.
    """
    (root / "state").mkdir()
    (root / "logs").mkdir()
    pool = {
        "nodes": load.hostlist(OUR_POOL), "partition": "spot", "launch_template": "demo-gpu",
        "subnets": {ZONE: subnet}, "offerings": offerings or load.market.offerings(),
    }  # fmt: skip
    burst: dict[str, object] = {
        "version": 1, "cluster": "demo", "region": "us-east-1", "endpoint_url": None,
        "bucket": "demo", "pools": {OUR_POOL: pool},
        "slurm": {
            "bin": str(bin_dir), "resume_timeout": TOLD_TIMEOUT if told else DEFAULT_TIMEOUT
        },
    }  # fmt: skip
    if told:
        at_once, per_second = simulated_aws.rate(raised=load.raised)
        burst["instance_rate"] = {"burst": at_once, "per_second": per_second}
    (root / "burst.json").write_text(json.dumps(burst))
    (root / "resume.json").write_text(load.resume_file(OUR_POOL))


def write_peer(root: Path, load: Load, subnet: str, *, dns: bool = True) -> None:
    """Write the peer's configuration as its cookbook does.

    All settings are defaults, so launches are all-or-nothing. Without `dns` there is no hosted
    zone, as with the peer's setting DisableManagedDns.
    """
    fleets = {"queue1": {"cr1": load.market.resource(subnet)}}
    (root / "fleet.json").write_text(json.dumps(fleets))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f%z")
    (root / "heartbeat").write_text(f"{now}\n")
    settings = {
        "cluster_name": "demo", "region": "us-east-1", "dynamodb_table": "names",
        "head_node_private_ip": "10.0.0.10",
        "head_node_hostname": "head", "fleet_config_file": str(root / "fleet.json"),
        "clustermgtd_heartbeat_file_path": str(root / "heartbeat"),
        "logging_config": "/nonexistent", "instance_id": "i-head",
    }  # fmt: skip
    if dns:
        settings |= {"hosted_zone": "Z1", "dns_domain": "demo.pcluster"}
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    (root / "resume.conf").write_text(f"[slurm_resume]\n{lines}")
    (root / "resume.json").write_text(load.resume_file(PEER_POOL))
