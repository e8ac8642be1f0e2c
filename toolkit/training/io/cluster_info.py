"""Read what the cluster and its instances tell a job: the site's file and the instance's file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import read_json

SITE_FILE = "/shared/.toolkit/training.json"
INSTANCE_FILE = "/run/slurm-toolkit/instance.json"


def instance_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What this machine is (type, price, image …), as node boot wrote it; empty off the cluster."""
    return read_json(Path(environment.get("TOOLKIT_INSTANCE_FILE", INSTANCE_FILE))) or {}


def site_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What the cluster tells every job (where MLflow is); empty off the cluster."""
    return read_json(Path(environment.get("TOOLKIT_SITE_FILE", SITE_FILE))) or {}
