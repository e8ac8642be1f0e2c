"""The real cluster's instances, as EC2 lists them, and their machines."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from toolkit.config import load
from toolkit.deploy.session import Clients
from toolkit.local.machines import factory
from toolkit.local.machines.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.local.machines.nspawn_driver import NspawnDriver

LIVE = ("pending", "running", "shutting-down", "stopping", "stopped")


@functools.cache
def machine_driver() -> NspawnDriver:
    """Return a driver of this cloud's machines."""
    return factory.nspawn_driver(Layout.from_environment())


@functools.cache
def _ec2(config: Path) -> Any:
    """Return a client; to make one takes more CPU than its calls."""
    return Clients(load(config)).client("ec2")


def instances_of_pool(cluster, pool: str, *states: str) -> list[dict]:
    """Return the pool's instances that EC2 lists in those states."""
    response = _ec2(cluster.config).describe_instances(
        Filters=[
            {"Name": f"tag:{tags.POOL}", "Values": [pool]},
            {"Name": "instance-state-name", "Values": list(states)},
        ]
    )
    return [item for group in response["Reservations"] for item in group["Instances"]]


def node(cluster, name: str) -> dict:
    """Return Slurm's record of the node."""
    return json.loads(cluster.run("scontrol", "show", "node", name, "--json"))["nodes"][0]


def driver_and_machine(cluster, name: str) -> tuple[NspawnDriver, str]:
    """Return the driver and the id of the machine behind a node."""
    return machine_driver(), node(cluster, name)["instance_id"]
