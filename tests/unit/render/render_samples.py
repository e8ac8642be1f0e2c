"""Configurations that the renderer's tests share."""

import json
from decimal import Decimal
from typing import Any

from toolkit.config.model import ClusterConfig
from toolkit.render import PriceTable, StackFacts

FACTS = StackFacts(
    bucket="demo-111122223333-us-east-1",
    secret_id="demo/slurm-key",
    subnets={"us-east-1a": "subnet-0aa", "us-east-1b": "subnet-0bb"},
    shared_dns="fs-01.fsx.us-east-1.amazonaws.com",
    shared_mount="shared",
    mlflow_role="arn:aws:iam::111122223333:role/toolkit-demo-MlflowRole-1A2B3C",
    log_group="/toolkit/demo",
    heartbeat_namespace="toolkit/demo",
    reads_metrics=True,
    nat_gateway="nat-0123456789abcdef0",
    head_volume="vol-0123456789abcdef0",
    backup_bucket="demo-111122223333-us-east-1-bak",
)
PRICES = PriceTable(
    on_demand={"g5.xlarge": Decimal("1.006"), "c7i.4xlarge": Decimal("0.714")},
    spot={
        ("g5.xlarge", "us-east-1a"): Decimal("0.4024"),
        ("g5.xlarge", "us-east-1b"): Decimal("0.3911"),
    },
)
GPU_POOL: dict[str, Any] = {
    "count": 4,
    "shape": {"cpus": 4, "memory_gib": 16, "gpus": 1, "gpu": "a10g"},
    "offerings": [
        {"type": "g5.xlarge", "capacity": "spot"},
        {"type": "g5.xlarge", "capacity": "on-demand"},
    ],
}
CPU_POOL: dict[str, Any] = {
    "count": 1,
    "shape": {"cpus": 16, "memory_gib": 32},
    "offerings": [{"type": "c7i.4xlarge", "capacity": "on-demand"}],
    "zones": ["us-east-1b"],
}


def a_config(**changes: Any) -> ClusterConfig:
    """Return a cluster with a GPU pool and a CPU pool.

    `changes` replace whole sections.
    """
    document: dict[str, Any] = {
        "cluster": "demo",
        "profile": "local",
        "aws": {"region": "us-east-1", "endpoint_url": "http://127.0.0.1:4566"},
        "network": {
            "cidr": "10.42.0.0/16",
            "zones": {"us-east-1a": "10.42.1.0/24", "us-east-1b": "10.42.2.0/24"},
        },
        "slurm": {"version": "24.11", "suspend_time": 30, "resume_timeout": 180},
        "training": {"python": "/opt/python/bin/python3", "requirements": ["torch==2.13.0"]},
        "pools": {"gpu": GPU_POOL, "cpu": CPU_POOL},
        "partitions": {
            "spot": {"pools": ["gpu"], "default": True, "max_time": "1-00:00:00"},
            "any": {"pools": ["gpu", "cpu"]},
        },
        "accounts": [{"name": "vision", "fairshare": 60}],
        "users": [{"name": "ada", "uid": 2001, "account": "vision"}],
    }
    # Through JSON, as from YAML: only there do strict models accept lists for tuples.
    return ClusterConfig.model_validate_json(json.dumps(document | changes))
