"""Gathers a report's input by cluster.yaml: for `toolkit report` and `toolkit reconcile-bill`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.model.hostlist import expand
from slurmplugins.slurm.sacct import new_token
from toolkit.accounting.allocation import Policy
from toolkit.accounting.collect import Sources, collect
from toolkit.accounting.settings import contracts, cost_policy, infrastructure, racks
from toolkit.commands.options import find_config_file
from toolkit.deploy import names
from toolkit.join.site import read_cluster_name
from toolkit.prices import imports

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.report import Report
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner


def collect_report(
    config_path: Path | None,
    config: ClusterConfig,
    clients: Clients,
    runner: Runner,
    *,
    window: Window,
    now: int,
    trail: Trail | None = None,
) -> Report:
    """Return the report of a window, from the head and AWS."""
    sources = sources_of(config_path, config, clients, runner, trail)
    return collect(sources, window, now, new_token(), Policy())


def sources_of(
    config_path: Path | None,
    config: ClusterConfig,
    clients: Clients,
    runner: Runner,
    trail: Trail | None = None,
) -> Sources:
    """Return the sources of a cluster's facts."""
    imported = imports.read(imports.folder(find_config_file(config_path)))
    site = config.site
    return Sources(
        cluster=config.cluster,
        region=config.aws.region,
        bucket=names.bucket(config, clients.account),
        records_bucket=names.backup_bucket(config, clients.account),
        ec2=clients.client("ec2"),
        s3=clients.client("s3"),
        runner=runner,
        static_nodes=frozenset(
            node
            for name, pool in config.pools.items()
            if pool.static
            for node in expand(config.nodes(name, pool.static))
        ),
        trail=trail,
        contracts=contracts(config),
        racks=racks(config),
        cost_policy=cost_policy(config),
        imported=imported,
        # A join has no head, no filesystem and no NAT gateway of its own.
        infrastructure=None if site else infrastructure(config),
        slurm_cluster=read_cluster_name(runner, slurm_bin=site.slurm_bin) if site else "",
        own_nodes=_own_nodes(config) if site else None,
    )


def _own_nodes(config: ClusterConfig) -> frozenset[str]:
    return frozenset(node for pool in config.pools for node in expand(config.nodes(pool)))
