"""The cluster.yaml of the month of three accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

EXAMPLE = Path(__file__).parents[2] / "examples/local.yaml"

L40S = {"cpus": 48, "memory_gib": 384, "gpus": 4, "gpu": "l40s"}
# Sizes and prices are EC2's. On the local cloud a machine is a container, whatever its type.
POOLS = {
    "gpu": {
        "count": 6,
        "shape": {"cpus": 4, "memory_gib": 16, "gpus": 1, "gpu": "a10g"},
        "offerings": [
            {"type": "g5.xlarge", "capacity": "spot"},
            {"type": "g5.xlarge", "capacity": "on-demand"},
        ],
    },
    "large": {
        "count": 2,
        "shape": L40S,
        "offerings": [
            {"type": "g6e.12xlarge", "capacity": "spot"},
            {"type": "g6e.12xlarge", "capacity": "on-demand"},
        ],
    },
    "steady": {
        "count": 3,
        "shape": L40S,
        "offerings": [{"type": "g6e.12xlarge", "capacity": "on-demand"}],
    },
    "cpu": {
        "count": 4,
        "shape": {"cpus": 16, "memory_gib": 32},
        "offerings": [{"type": "c7i.4xlarge", "capacity": "on-demand"}],
    },
}
PARTITIONS = {
    "spot": {"pools": ["gpu"], "default": True, "max_time": "1-00:00:00"},
    "large": {"pools": ["large"], "policy": "spot-first", "max_time": "1-00:00:00"},
    "steady": {"pools": ["steady"], "max_time": "12:00:00"},
    "cpu": {"pools": ["cpu"], "max_time": "12:00:00"},
}
ACCOUNTS = [
    {"name": "science", "fairshare": 80, "owner": "dean@example.org", "cost_centre": "4700"},
    {
        "name": "vision",
        "parent": "science",
        "fairshare": 60,
        "owner": "pi-vision@example.org",
        "cost_centre": "4711",
        "project": "imagenet",
        "grant": {"name": "ERC-1", "since": "2026-01-01", "until": "2027-12-31"},
        "discount_percent": 20,
    },
    {
        "name": "language",
        "parent": "science",
        "fairshare": 40,
        "owner": "pi-language@example.org",
        "cost_centre": "4712",
        "grant": {"name": "DFG-7", "since": "2026-01-01", "until": "2026-11-15"},
        "users": ["mary"],
    },
    {
        "name": "robotics",
        "fairshare": 20,
        "owner": "pi-robotics@example.org",
        "cost_centre": "4720",
        "subsidy_usd": 1,
    },
]
USERS = [
    {"name": "ada", "uid": 2001, "account": "vision"},
    {"name": "mary", "uid": 2002, "account": "vision"},
    {"name": "grace", "uid": 2003, "account": "language"},
    {"name": "linus", "uid": 2004, "account": "robotics"},
]
BUDGETS = {
    "vision-month": {"account": "vision", "usd": 500},
    # A dollar: it runs dry in this month.
    "robotics-month": {
        "account": "robotics",
        "usd": 1,
        "steps": [{"at": 50, "do": "warn"}, {"at": 100, "do": "hold"}],
    },
}
CLASSES = {
    "sweep": {"priority": 10, "per_user": {"jobs": 50}},
    "train": {"priority": 50, "preempts": ["sweep"]},
}
STATEMENTS = {
    "issuer": "HPC group",
    "sender": "hpc@example.org",
    "rate_card": {"as_of": "2026-10-01", "gpu_hour": 2.50, "node_hours": {"c7i.4xlarge": 0.80}},
    "ledger": {"recovery": "4800", "subsidy": "6900", "cluster": "6800"},
}


BELIEVED = {"type": "g6e.12xlarge", "discount_percent": 15, "since": "2026-01-01"}
"""A contract that ended in truth. The bill of the month says so."""


def settings(state: Path, port: int) -> dict[str, Any]:
    """Return the example's cluster.yaml with three accounts, their budgets and rates."""
    found: dict[str, Any] = YAML(typ="rt").load(EXAMPLE.read_text())
    found["cluster"] = "november"
    found["slurm"]["suspend_time"] = 30
    found["pools"], found["partitions"] = POOLS, PARTITIONS
    found["accounts"], found["users"] = ACCOUNTS, USERS
    found["budgets"], found["classes"] = BUDGETS, CLASSES
    found["statements"] = STATEMENTS
    found["prices"] = {"as_of": "2026-10-01", "on_demand": [BELIEVED]}
    found["aws"]["endpoint_url"] = f"http://127.0.0.1:{port}"
    found["aws"]["credentials_file"] = str(state / "aws/credentials")
    return found
