"""The resources that carry a cluster's tag or name, listed by each service, not the stack."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slurmplugins.cloud import tags
from toolkit.deploy import head_volume, names
from toolkit.deploy.instances import tag_values
from toolkit.deploy.storage import Bucket

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients

# Kinds that EC2 lists by tag: (its name for people, operation, key of the list, key of the id).
KINDS = (
    ("instance", "describe_instances", "Instances", "InstanceId"),
    ("volume", "describe_volumes", "Volumes", "VolumeId"),
    (
        "network interface",
        "describe_network_interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
    ),
    ("launch template", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    ("security group", "describe_security_groups", "SecurityGroups", "GroupId"),
    ("route table", "describe_route_tables", "RouteTables", "RouteTableId"),
    ("VPC endpoint", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    ("NAT gateway", "describe_nat_gateways", "NatGateways", "NatGatewayId"),
    ("elastic IP address", "describe_addresses", "Addresses", "AllocationId"),
    ("internet gateway", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    ("subnet", "describe_subnets", "Subnets", "SubnetId"),
    ("VPC", "describe_vpcs", "Vpcs", "VpcId"),
)
DELETED_STATES = {"terminated", "deleted", "deleting"}
DATA_VOLUME = "data volume"  # of the head node
FILESYSTEM = "filesystem"


@dataclass(frozen=True, slots=True)
class TaggedResource:
    """A resource of the cluster that exists."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def find_resources(clients: Clients, config: ClusterConfig) -> tuple[TaggedResource, ...]:
    """Return every resource of the cluster that some service still lists."""
    return (
        *_tagged(clients.client("ec2"), config.cluster),
        *_filesystems(clients, config),
        *_secrets(clients, config),
        *_bucket(clients, config),
    )


def delete_detached(clients: Clients, item: TaggedResource) -> None:
    """Delete a disk or interface that lost its instance; no stack does.

    A resource that can't be deleted yet stays, and is found again.
    """
    ec2 = clients.client("ec2")
    with suppress(ClientError):
        if item.kind == "volume":
            ec2.delete_volume(VolumeId=item.id)
        elif item.kind == "network interface":
            ec2.delete_network_interface(NetworkInterfaceId=item.id)


def _tagged(ec2: Any, cluster: str) -> Iterator[TaggedResource]:
    filters = [{"Name": f"tag:{tags.CLUSTER}", "Values": [cluster]}]
    for kind, operation, items, key in KINDS:
        for page in _pages(ec2, operation, filters):
            groups = page["Reservations"] if kind == "instance" else [page]
            for item in (item for group in groups for item in group[items]):
                if _state(item) not in DELETED_STATES:
                    holds_data = tag_values(item).get(tags.ROLE) == head_volume.ROLE
                    yield TaggedResource(DATA_VOLUME if holds_data else kind, item[key])


def _pages(ec2: Any, operation: str, filters: Sequence[dict[str, Any]]) -> Iterable[Any]:
    """Return all pages; some lists have one only."""
    if ec2.can_paginate(operation):
        pages: Iterable[Any] = ec2.get_paginator(operation).paginate(Filters=filters)
        return pages
    return (getattr(ec2, operation)(Filters=filters),)


def _state(item: Any) -> str:
    state = item.get("State", item.get("Status", ""))
    return str(state.get("Name", "")) if isinstance(state, dict) else str(state)


def _filesystems(clients: Clients, config: ClusterConfig) -> Iterator[TaggedResource]:
    for page in clients.client("fsx").get_paginator("describe_file_systems").paginate():
        for item in page["FileSystems"]:
            if tag_values(item).get(tags.CLUSTER) == config.cluster:
                yield TaggedResource(FILESYSTEM, item["FileSystemId"])


def _secrets(clients: Clients, config: ClusterConfig) -> Iterator[TaggedResource]:
    name = names.secret(config)
    pages = (
        clients.client("secretsmanager")
        .get_paginator("list_secrets")
        .paginate(Filters=[{"Key": "name", "Values": [name]}])
    )
    for page in pages:
        # The filter is by prefix.
        yield from (
            TaggedResource("secret", name) for item in page["SecretList"] if item["Name"] == name
        )


def _bucket(clients: Clients, config: ClusterConfig) -> Iterator[TaggedResource]:
    bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))
    if bucket.exists():
        yield TaggedResource("bucket", bucket.name)
