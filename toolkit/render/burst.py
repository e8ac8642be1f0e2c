"""Renders burst.json: the cluster for the head's programs (see slurmplugins.config.burst)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slurmplugins.config.budgets import KEY as BUDGETS
from slurmplugins.config.burst import MISSING_INSTANCE_GRACE, ORPHAN_GRACE, VERSION
from slurmplugins.config.governor import KEY as GOVERNOR
from slurmplugins.config.paths import SLURM_BIN
from slurmplugins.config.submit_line import KEY as SUBMIT_LINE
from toolkit.config.types import seconds
from toolkit.errors import RenderError
from toolkit.render.budgets import budgets_json
from toolkit.render.context import slurm_context
from toolkit.render.governor import FOLDER, governor_json
from toolkit.render.submit_line import submit_line_json
from toolkit.render.topology import pool_has_topology

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig, OfferingSection
    from toolkit.render.prices import Prices
    from toolkit.render.stack import StackFacts


def burst_json(config: ClusterConfig, facts: StackFacts, prices: Prices) -> str:
    """Return the whole file.

    Raises RenderError when a pool has a zone that the stack has no subnet in.
    """
    document = {
        "version": VERSION,
        "cluster": config.cluster,
        "region": config.aws.region,
        "endpoint_url": config.aws.endpoint_url,
        "slurm": {
            "bin": SLURM_BIN if config.site is None else config.site.slurm_bin,
            **({"cluster": facts.slurm_cluster} if facts.slurm_cluster else {}),
            "version": config.slurm.version,
            "resume_timeout": config.slurm.resume_timeout,
        },
        "bucket": facts.bucket,
        "log_group": facts.log_group or None,
        "heartbeat_namespace": facts.heartbeat_namespace or None,
        "reads_metrics": facts.reads_metrics,
        "nat_gateway": facts.nat_gateway or None,
        "grace_seconds": {"orphan": ORPHAN_GRACE, "unbacked": MISSING_INSTANCE_GRACE},
        "pools": {name: _pool(config, name, facts, prices) for name in config.pools},
        "partitions": {name: _policy(part.policy) for name, part in config.partitions.items()},
        GOVERNOR: governor_json(config, facts.governor_folder or FOLDER),
        BUDGETS: budgets_json(config, prices),
    }
    if config.site is None and config.slurm.submit_line:
        document[SUBMIT_LINE] = submit_line_json(config, slurm_context(config, prices))
    if config.aws.instance_rate is not None:
        document["instance_rate"] = config.aws.instance_rate.model_dump()
    return json.dumps(document, indent=2) + "\n"


def launch_template(cluster: str, pool: str, zone: str = "") -> str:
    """Return the name of a pool's launch template.

    The stack has it under the same name.
    """
    return ".".join(filter(None, (cluster, pool, zone)))


def _policy(text: str) -> dict[str, Any]:
    name, _, after = text.partition(" ")
    return {"policy": name, **({"after": seconds(after)} if after else {})}


def _pool(config: ClusterConfig, name: str, facts: StackFacts, prices: Prices) -> dict[str, Any]:
    zones, pool = config.pool_zones(name), config.pools[name]
    missing_zones = [zone for zone in zones if zone not in facts.subnets]
    if missing_zones:
        raise RenderError(
            f"pools.{name}: the stack has no subnet in {', '.join(missing_zones)}",
            next_step="run `toolkit deploy`, which creates the subnets",
        )
    document: dict[str, Any] = {
        "nodes": config.nodes(name),
        **({"static": pool.static} if pool.static else {}),
        "partition": config.partition_of(name),
        "launch_template": launch_template(config.cluster, name),
        "subnets": {zone: facts.subnets[zone] for zone in zones},
        "offerings": [
            _offering(offering, zone, prices)
            for offering in pool.offerings
            for zone in config.offering_zones(name, offering)
        ],
    }
    if pool.type_choice == "in-order":
        document["one_by_one"] = True
    if pool.zonal:
        document["zone_templates"] = {
            zone: launch_template(config.cluster, name, zone) for zone in zones
        }
    if pool.max_spot_share < 1:
        document["max_spot_share"] = pool.max_spot_share
    if pool_has_topology(config, name):
        document["in_topology"] = True
    return document


def _offering(offering: OfferingSection, zone: str, prices: Prices) -> dict[str, Any]:
    is_block = offering.capacity == "capacity-block"
    capacity = "on-demand" if is_block else offering.capacity
    document: dict[str, Any] = {
        "type": offering.type,
        "capacity": capacity,
        "zone": zone,
        "price": f"{prices.usd_per_hour(offering.type, capacity, zone):f}",
    }
    if offering.reservation:
        document["reservation"] = offering.reservation
    if is_block:
        document["block"] = True
    return document
