"""The lab of racks.py with cloud nodes of a join, and what a person does there."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from slurmplugins.cloud import tags
from tests.slurm import racks
from tests.slurm.conftest import is_kept, toolkit
from tests.slurm.rack_files import CLOUD, CONTROLLER, CREDENTIALS, NETWORK, RACKS, SLURM, USERS
from tests.slurm.waiting import PATIENCE, until
from toolkit.deploy.session import Clients

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slurm.racks import Lab
    from toolkit.config import ClusterConfig

CLUSTER = "burst"
GOVERN = ("runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-govern")
BUDGETS = {"physics": 5, "biology": "0.01"}


class JoinedSite:
    """The lab, and cluster.yaml of the join."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self.lab, self.path = lab, path

    def toolkit(self, *words: str, code: int = 0) -> str:
        """Run a command of the CLI, and return all that it printed."""
        groups = ("join", "burst", "usage")
        group = words[:2] if words[0] in groups else words[:1]
        argv = (*group, "--config", str(self.path), *words[len(group) :])
        done = toolkit(*argv, may_fail=True, timeout=PATIENCE * 2)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def submit(self, *words: str, user: str = "ada") -> str:
        """Submit a job, and return its number."""
        argv = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *words)
        return self.lab.run("runuser", "-u", user, "--", *argv).strip()

    def job(self, number: str) -> dict[str, Any]:
        """Return slurmctld's record of a job."""
        text = self.lab.run("scontrol", "show", "job", number, "--json", may_fail=True)
        (job,) = json.loads(text)["jobs"]
        return job

    def state(self, number: str) -> str:
        """Return a job's state; CONFIGURING while its nodes boot."""
        states = self.job(number)["job_state"]
        return "CONFIGURING" if "CONFIGURING" in states else str(states[0])

    def accounted(self, number: str, columns: str) -> str:
        """Return a job's row of sacct."""
        return self.lab.run("sacct", "-nXP", "-j", number, "-o", columns).strip()

    def govern(self, number: str) -> dict[str, Any]:
        """Run a pass of the governor, and return the job's record."""
        self.lab.run(*GOVERN)
        return self.job(number)

    def instances(self) -> list[str]:
        """Return the cloud nodes' instances that EC2 has not ended."""
        response = self.lab.clients.client("ec2").describe_instances(
            Filters=[
                {"Name": f"tag:{tags.CLUSTER}", "Values": [CLUSTER]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
        )
        groups = response["Reservations"]
        return [item["InstanceId"] for group in groups for item in group["Instances"]]


@contextlib.contextmanager
def site(
    config: ClusterConfig, folder: Path, upgrade: str = "", *, jobscripts: bool = False
) -> Iterator[JoinedSite]:
    """Build the lab in a cluster's cloud, and write its join.yaml.

    With `jobscripts`, the image of cloud nodes has them. Both are removed at the end, unless
    TOOLKIT_TEST_CLUSTER=keep is set.
    """
    clients, path = Clients(config), folder / "join.yaml"
    lab = racks.kept(clients, folder, upgrade) or racks.build(clients, config, folder, upgrade)
    joined = JoinedSite(lab, path)
    document = settings(config, lab)
    if jobscripts:
        document["site"]["jobscripts"] = True
        document["training"] = {"requirements": ["torch==2.13.0", "numpy"]}
    write(path, document)
    try:
        _leave(joined)
        yield joined
    finally:
        lab.set_aws(reachable=True)
        if not is_kept():
            _leave(joined)
            racks.tear_down(lab)


def _leave(joined: JoinedSite) -> None:
    """Take away what an earlier session left in the lab."""
    lab = joined.lab
    lab.set_aws(reachable=True)
    for user in USERS:
        lab.run("scancel", f"--user={user}")
    until("the lab has no job", lambda: not lab.run("squeue", "--noheader").strip())
    argv = ("join", "remove", "--config", str(joined.path), "--records", "--yes")
    if "toolkit-" in lab.run("cat", "/etc/slurm/slurm.conf"):
        toolkit(*argv, timeout=PATIENCE)


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a cluster.yaml."""
    with path.open("w") as file:
        YAML().dump(document, file)


def settings(config: ClusterConfig, lab: Lab) -> dict[str, Any]:
    """Return cluster.yaml of the join."""
    aws = config.aws
    return {
        "kind": "join",
        "cluster": CLUSTER,
        "profile": "local",
        "aws": {
            "region": aws.region,
            "endpoint_url": aws.endpoint_url,
            "profile": aws.profile,
            "credentials_file": aws.credentials_file,
        },
        "network": {
            "cidr": NETWORK,
            "vpc": lab.vpc,
            "zones": {racks.ZONE: CLOUD},
            "subnets": {racks.ZONE: lab.subnets[CLOUD]},
        },
        "site": {
            "controllers": [CONTROLLER],
            "ssh": lab.ssh(),
            "networks": [RACKS],
            "users": [{"name": name, "uid": uid} for name, uid in USERS.items()],
            "aws": {
                "principal": f"arn:aws:iam::{Clients(config).account}:root",
                "profile": aws.profile,
                "credentials_file": CREDENTIALS,
            },
        },
        "slurm": {"version": SLURM, "suspend_time": 15, "resume_timeout": 180},
        "logs": {"enabled": False},
        "pools": {
            "cloud": {
                "count": 3,
                "shape": {"cpus": 2, "memory_gib": 4},
                "offerings": [{"type": "m7i.large", "capacity": "on-demand"}],
            }
        },
        "prices": {
            "as_of": "2026-11-01",
            "racks": [{"nodes": "rack-[001-003]", "usd_per_hour": 1}],
        },
        "partitions": {"burst": {"pools": ["cloud"], "max_time": "8:00:00"}},
        "burst": {
            "main": {
                "partition": "burst",
                "after": "15s",
                "accounts": {name: {"usd_per_month": usd} for name, usd in BUDGETS.items()},
            }
        },
    }
