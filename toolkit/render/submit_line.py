"""The line at submit: the part of burst.json that names nodes and partitions for it.

slurm-prices adds the prices of the moment (see slurmplugins.head.price_file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.render.slurm_time import MINUTE, limit_seconds

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig
    from toolkit.render.context import NodeLine, PartitionLine, SlurmContext


def submit_line_json(config: ClusterConfig, context: SlurmContext) -> dict[str, Any]:
    """Return the part, as slurm.conf has these nodes and partitions."""
    nodes = {line.pool: line for line in context.nodes}
    default = [line.name for line in context.partitions if line.default]
    return {
        "default": default[0] if default else None,
        "partitions": {line.name: _partition(config, line, nodes) for line in context.partitions},
        "nodes": {name: _node(config, line) for name, line in nodes.items()},
        "default_accounts": {user.name: user.account for user in config.users},
        "private_data": list(config.slurm.private_data),
    }


def _partition(
    config: ClusterConfig, line: PartitionLine, nodes: dict[str, NodeLine]
) -> dict[str, Any]:
    pools = config.partitions[line.name].pools
    limit = limit_seconds(line.max_time)
    return {
        "pools": sorted(pools, key=lambda pool: nodes[pool].weight),
        "max_minutes": None if limit is None else limit // MINUTE,
        "cpus_per_gpu": line.cpus_per_gpu,
        "memory_per_cpu": line.memory_per_cpu,
        "memory_per_gpu": line.memory_per_gpu,
    }


def _node(config: ClusterConfig, line: NodeLine) -> dict[str, Any]:
    return {
        "count": config.pools[line.pool].count,
        "cpus": line.cpus,
        "memory_mib": line.memory_mib,
        "gpus": line.gpus,
        "gpu": line.gpu,
        "features": list(line.features),
        "threads_of_core": line.threads_per_core if line.sockets else 1,
    }
