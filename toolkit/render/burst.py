"""burst.json: what the hooks on the head know about the cluster (read by slurmplugins.config)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import VERSION
from toolkit.errors import RenderError

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig
    from toolkit.render.prices import Prices
    from toolkit.render.stack import StackFacts

SLURM_BIN: Final = "/usr/bin"
ORPHAN_GRACE: Final = 90
"""Seconds an instance may live that no node asked for: longer than a launch takes to be written
back."""
UNBACKED_GRACE: Final = 60
"""Seconds a node may be up in Slurm without an instance: longer than EC2's listings lag."""


def burst_json(config: ClusterConfig, facts: StackFacts, prices: Prices) -> str:
    """The whole file; RenderError when a pool has a zone that the stack has no subnet in."""
    document = {
        "version": VERSION,
        "cluster": config.cluster,
        "region": config.aws.region,
        "endpoint_url": config.aws.endpoint_url,
        "slurm": {
            "bin": SLURM_BIN,
            "version": config.slurm.version,
            "resume_timeout": config.slurm.resume_timeout,
            "suspend_timeout": config.slurm.suspend_timeout,
        },
        "bucket": facts.bucket,
        "grace_seconds": {"orphan": ORPHAN_GRACE, "unbacked": UNBACKED_GRACE},
        "pools": {name: _pool(config, name, facts, prices) for name in config.pools},
    }
    return json.dumps(document, indent=2) + "\n"


def launch_template(cluster: str, pool: str) -> str:
    """The name of a pool's launch template, the same in the stack and here."""
    return f"{cluster}-{pool}"


def _pool(config: ClusterConfig, name: str, facts: StackFacts, prices: Prices) -> dict[str, Any]:
    zones = config.pool_zones(name)
    missing = [zone for zone in zones if zone not in facts.subnets]
    if missing:
        raise RenderError(f"pools.{name}: the stack has no subnet in {', '.join(missing)}")
    static = config.pools[name].static
    return {
        "nodes": config.nodes(name),
        **({"static": static} if static else {}),
        "partition": config.partition_of(name),
        "launch_template": launch_template(config.cluster, name),
        "subnets": {zone: facts.subnets[zone] for zone in zones},
        "offerings": [
            {
                "type": offering.type,
                "capacity": offering.capacity,
                "zone": zone,
                "price": f"{prices.usd_per_hour(offering.type, offering.capacity, zone):f}",
            }
            for offering in config.pools[name].offerings
            for zone in zones
        ],
    }
