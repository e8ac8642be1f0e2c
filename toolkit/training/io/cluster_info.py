"""Read two files about the cluster and the instance.

The head's playbook writes one for the whole site, node boot writes the other.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import read_json

SITE_FILE = "/shared/.toolkit/training.json"
INSTANCE_FILE = "/run/slurm-toolkit/instance.json"


def instance_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the facts about this instance (type, price, image …).

    Node boot wrote them. Empty off the cluster.
    """
    return read_json(Path(environment.get("TOOLKIT_INSTANCE_FILE", INSTANCE_FILE))) or {}


def site_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the facts that the cluster tells every job (where MLflow is).

    Empty off the cluster.
    """
    return read_json(Path(environment.get("TOOLKIT_SITE_FILE", SITE_FILE))) or {}
