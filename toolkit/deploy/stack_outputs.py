"""The resources of a finished stack, by logical id: the ids that AWS chose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.deploy import head_volume, names
from toolkit.deploy.stack import head_reads_metrics, subnet_logical_id
from toolkit.errors import StackMissing
from toolkit.render import StackFacts

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients


def stack_resources(clients: Clients, stack: str) -> dict[str, str]:
    """Return logical id → physical id of everything that has one."""
    pages = (
        clients.client("cloudformation")
        .get_paginator("list_stack_resources")
        .paginate(StackName=stack)
    )
    return {
        item["LogicalResourceId"]: item["PhysicalResourceId"]
        for page in pages
        for item in page["StackResourceSummaries"]
        if item.get("LogicalResourceId") and item.get("PhysicalResourceId")
    }


def stack_facts(config: ClusterConfig, clients: Clients) -> StackFacts:
    """Return the renderer's facts about the stack.

    Raises StackMissing while the stack is incomplete.
    """
    resource_ids = stack_resources(clients, names.stack(config))
    try:
        filesystem = resource_ids["SharedFilesystem"]
        head_volume_id = resource_ids[head_volume.logical_id(config)]
        subnets = {zone: resource_ids[subnet_logical_id(zone)] for zone in config.network.zones}
        nat_gateway = resource_ids["Nat"] if config.network.nat_subnet else ""
        mlflow_role = resource_ids["MlflowRole"] if config.mlflow.enabled else ""
    except KeyError as error:
        raise StackMissing(
            f"stack {names.stack(config)} has no {error.args[0]}",
            next_step="run `toolkit deploy` to complete the stack",
        ) from error
    shared = clients.client("fsx").describe_file_systems(FileSystemIds=[filesystem])["FileSystems"]
    return StackFacts(
        bucket=names.bucket(config, clients.account),
        secret_id=names.secret(config),
        subnets=subnets,
        shared_dns=shared[0]["DNSName"],
        shared_mount=shared[0]["LustreConfiguration"]["MountName"],
        mlflow_role=clients.role_arn(mlflow_role) if mlflow_role else "",
        head_volume=head_volume_id,
        log_group=names.log_group(config) if config.logs.enabled else "",
        heartbeat_namespace=names.heartbeat_namespace(config) if config.alarms.enabled else "",
        backup_bucket=names.backup_bucket(config, clients.account),
        reads_metrics=head_reads_metrics(config),
        nat_gateway=nat_gateway,
    )
