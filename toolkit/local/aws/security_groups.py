"""Security groups: whose they are, and the firewall that follows from moto's tables.

moto gives an interface its own groups and those of its instance, so it never loses one. On EC2
the groups belong to the interface; those of an instance are its primary interface's.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

from collections import defaultdict
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_network_interfaces import NetworkInterface, NetworkInterfaceBackend
from moto.ec2.models.security_groups import SecurityGroupBackend, SecurityGroupRule

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.machines.firewall import ICMP, TCP, UDP, Firewall, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.moto_patches import Patches

_PRIMARY = 0  # the device index
_NUMBERS = {
    "-1": None,
    "icmp": ICMP,
    "tcp": TCP,
    "udp": UDP,
    "icmpv6": 58,
}  # EC2's names of protocols


def install(patches: Patches) -> None:
    """Let new groups of an instance or interface replace the old.

    A VPC's default group lets its own members in:
    https://docs.aws.amazon.com/vpc/latest/userguide/default-security-group.html
    """
    original_create = vars(SecurityGroupBackend)["create_security_group"]
    original_change = vars(NetworkInterfaceBackend)["modify_network_interface_attribute"]

    def change_interface(backend: Any, eni_id: str, group_ids: list[str], *rest: Any) -> None:
        interface = backend.get_network_interface(eni_id)
        groups = existing(backend, group_ids)
        original_change(backend, eni_id, group_ids, *rest)
        if groups:
            _set_groups(interface, groups)

    def change_instance(backend: Any, instance_id: str, group_ids: list[str]) -> Any:
        instance = backend.get_instance(instance_id)
        if len(instance.nics) > 1:
            message = f"There are multiple interfaces attached to instance '{instance_id}'."
            raise ec2_error("InvalidInstanceID", f"{message} Please specify an interface ID.")
        groups = existing(backend, group_ids)
        for interface in instance.nics.values():
            _set_groups(interface, groups)
        return instance

    def create(backend: Any, *args: Any, **named: Any) -> Any:
        group = original_create(backend, *args, **named)
        if group.is_default:
            itself = {"GroupId": group.id, "UserId": backend.account_id}
            group.ingress_rules.append(
                SecurityGroupRule(
                    backend, "-1", group.id, None, None, None, itself, is_egress=False
                )
            )
        return group

    patches.replace(EC2Backend, "create_security_group", create)
    patches.replace(NetworkInterface, "group_set", property(lambda row: list(row._group_set)))
    patches.replace(EC2Backend, "modify_network_interface_attribute", change_interface)
    patches.replace(EC2Backend, "modify_instance_security_groups", change_instance)


def existing(backend: Any, group_ids: Iterable[str]) -> list[Any]:
    """Return the groups of these ids; refuse an unknown id."""
    groups = []
    for group_id in group_ids:
        group = backend.get_security_group_from_id(group_id)
        if group is None:
            message = f"The security group '{group_id}' does not exist"
            raise ec2_error("InvalidGroup.NotFound", message)
        groups.append(group)
    return groups


def _set_groups(interface: Any, groups: list[Any]) -> None:
    interface._group_set = list(groups)
    if interface.instance is not None and interface.device_index == _PRIMARY:
        interface.instance.security_groups = list(groups)


def firewalls(tables: Tables) -> dict[str, Firewall]:
    """Return each VPC's firewall; call it with the lock held."""
    result: dict[str, Firewall] = {}
    for region in tables.regions():
        backend = tables.ec2(region)
        for vpc_id, members in _members(backend).items():
            groups = list(backend.groups.get(vpc_id, {}).values())
            result[vpc_id] = Firewall(
                {group_id: frozenset(addresses) for group_id, addresses in members.items()},
                _rules(backend, ((group.id, group.ingress_rules) for group in groups)),
                _rules(backend, ((group.id, group.egress_rules) for group in groups)),
            )
    return result


def _members(backend: Any) -> dict[str, dict[str, set[IPv4Address]]]:
    """Return the addresses of each group, by VPC."""
    members: dict[str, dict[str, set[IPv4Address]]] = defaultdict(lambda: defaultdict(set))
    for interface in backend.enis.values():
        addresses = [item["PrivateIpAddress"] for item in interface.private_ip_addresses]
        for group in interface.group_set:
            members[interface.vpc_id][group.id].update(map(IPv4Address, addresses))
    return members


def _rules(backend: Any, rows_of_groups: Iterable[tuple[str, list[Any]]]) -> frozenset[Rule]:
    return frozenset(
        rule
        for group_id, rows in rows_of_groups
        for row in rows
        for rule in _rules_of(backend, group_id, row)
    )


def _rules_of(backend: Any, group_id: str, row: Any) -> Iterator[Rule]:
    """Yield the rules of a row, one for each network."""
    name = str(row.ip_protocol).lower()
    if name not in _NUMBERS and not name.isdigit():  # moto takes any word
        return
    protocol = _NUMBERS[name] if name in _NUMBERS else int(name)
    ports = _ports(protocol, row)
    peer_group = row.source_group.get("GroupId")
    if peer_group:
        yield Rule(group_id, protocol, ports, peer_group=peer_group)
    for network in _networks(backend, row):
        yield Rule(group_id, protocol, ports, peer_network=network)


def _ports(protocol: int | None, row: Any) -> tuple[int, int] | None:
    """Return ports, or ICMP's type and code; None is all."""
    if protocol not in (ICMP, TCP, UDP) or row.from_port in (None, "") or int(row.from_port) < 0:
        return None
    return int(row.from_port), int(row.to_port)


def _networks(backend: Any, row: Any) -> Iterator[IPv4Network]:
    if row.cidr_ipv4:
        yield IPv4Network(row.cidr_ipv4, strict=False)
    prefix_list = backend.managed_prefix_lists.get(row.prefix_list_id)
    if prefix_list is not None and prefix_list.address_family == "IPv4":
        entries = list(prefix_list.entries.values())[-1] if prefix_list.entries else ()
        yield from (IPv4Network(entry["Cidr"], strict=False) for entry in entries)
