"""The network of an FSx file system: the ports that its groups must permit, its interfaces."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from moto.core.exceptions import JsonRESTError
from moto.ec2.models import ec2_backends

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Both directions, between the file system's own servers:
# https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html
_PORTS = (988, *range(1018, 1024))
_GIB_PER_SERVER = 2400


def check_groups(backend: Any, subnet_id: str, group_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the groups, the VPC's default one if none are given.

    Raises FSx's error of closed groups:
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/cannot-create-fs.html
    """
    subnet = backend.get_subnet(subnet_id)
    ids = tuple(group_ids) or (backend.get_default_security_group(subnet.vpc_id).id,)
    groups = [backend.get_security_group_from_id(group_id) for group_id in ids]
    if None in groups:
        message = f"The security group '{ids[groups.index(None)]}' does not exist"
        raise JsonRESTError("InvalidNetworkSettings", message)
    ingress = [rule for group in groups for rule in group.ingress_rules]
    egress = [rule for group in groups for rule in group.egress_rules]
    if not (_permit(ingress, ids, subnet.cidr) and _permit(egress, ids, subnet.cidr)):
        message = (
            "The file system cannot be created because the default security group in the subnet "
            "provided or the provided security groups do not permit Lustre LNET network traffic "
            "on port 988"
        )
        raise JsonRESTError("InvalidNetworkSettings", message)
    return ids


def _permit(rules: Iterable[Any], group_ids: Sequence[str], network: Any) -> bool:
    """Return whether the groups' own members may use Lustre's ports."""
    own_rules = [
        rule
        for rule in rules
        if rule.source_group.get("GroupId") in group_ids
        or (rule.cidr_ipv4 and network.subnet_of(ipaddress.ip_network(rule.cidr_ipv4)))
    ]
    return all(any(_covers(rule, port) for rule in own_rules) for port in _PORTS)


def _covers(rule: Any, port: int) -> bool:
    if rule.ip_protocol == "-1":
        return True
    return bool(rule.ip_protocol == "tcp" and rule.from_port <= port <= rule.to_port)


def create_interfaces(
    backend: Any, subnet_id: str, group_ids: Sequence[str], system_id: str, gib: int
) -> tuple[str, ...]:
    """Create an interface for each server of the file system."""
    count = 1 + -(-gib // _GIB_PER_SERVER)
    return tuple(
        backend.create_network_interface(
            subnet_id,
            None,
            group_ids=list(group_ids),
            description=f"Created by Amazon FSx for {system_id}",
        ).id
        for _ in range(count)
    )


def ec2_of(backend: Any) -> Any:
    """Return moto's EC2 beside one of its other backends."""
    return ec2_backends[backend.account_id][backend.region_name]
