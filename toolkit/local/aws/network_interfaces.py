"""Network interfaces: each has its address alone, and stays as long as something uses it.

moto gives an interface any address and deletes it at any time. EC2 refuses an address
that another interface has, also to endpoints, NAT gateways and file systems.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from moto.ec2.models import EC2Backend, ec2_backends, nat_gateways, vpcs
from moto.ec2.models.elastic_network_interfaces import NetworkInterface, NetworkInterfaceBackend
from moto.ec2.models.instances import Instance
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.models.subnets import Subnet

from toolkit.local.aws import security_groups
from toolkit.local.aws.aws_errors import ec2_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.moto_patches import Patches


class NetworkInterfaces:
    """Gives out the addresses of all subnets."""

    def __init__(self, tables: Tables) -> None:
        """Read the addresses that running stack operations ask for from `tables`."""
        self._tables = tables

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's addresses and of its deletions."""
        for module in (vpcs, nat_gateways):
            # moto's endpoints and NAT gateways ask for an address outside of their subnet.
            patches.replace(module, "random_private_ip", lambda: "")
        original_choice = vars(Subnet)["get_available_subnet_ip"]
        original_delete = vars(SecurityGroupBackend)["_delete_security_group"]

        def available_address(subnet: Any, owner: Any = None, **named: Any) -> str:
            owner = named.get("instance", owner)
            return self._contested_address(subnet, owner) or str(original_choice(subnet, owner))

        def delete_group(backend: Any, vpc_id: str | None, group_id: str) -> None:
            _check_group_unused(backend, group_id)
            original_delete(backend, vpc_id, group_id)

        patches.replace(Subnet, "get_available_subnet_ip", available_address)
        patches.replace(EC2Backend, "create_network_interface", _create())
        patches.replace(EC2Backend, "delete_network_interface", _delete)
        patches.replace(EC2Backend, "_delete_security_group", delete_group)
        patches.replace(NetworkInterface, "delete", lambda row: remove(row.ec2_backend, row.id))
        patches.replace(
            NetworkInterface, "create_from_cloudformation_json", classmethod(_from_stack)
        )
        patches.replace(
            NetworkInterface, "delete_from_cloudformation_json", classmethod(_delete_from_stack)
        )

    def _contested_address(self, subnet: Any, owner: Any) -> str | None:
        """Return a free address that a stack operation still needs, or None.

        EC2 may choose any free address. The worst choice shows a template that relies on
        another.
        """
        for address in sorted(self._tables.wanted_addresses):
            if ipaddress.ip_address(address) in subnet.cidr and address not in subnet._subnet_ips:
                subnet.request_ip(address, owner)
                return address
        return None


def address_refusal(address: str | None, error: Exception) -> Exception:
    """Return EC2's error for moto's bare Exception about an address."""
    if type(error) is not Exception:
        return error
    if "in use" in str(error):
        return ec2_error("InvalidIPAddress.InUse", f"Address {address} is in use.")
    return ec2_error("InvalidParameterValue", f"Address {address}: {error}")


def check_attachable(interface: Any) -> None:
    """Refuse an interface that an instance holds, until that instance is terminated."""
    if interface.instance is not None:
        message = f"Interface: [{interface.id}] in use."
        raise ec2_error("InvalidNetworkInterface.InUse", message)


def remove(backend: Any, interface_id: str) -> None:
    """Delete an interface, whoever uses it; its addresses are free again."""
    interface = backend.enis.pop(interface_id, None)
    if interface is not None:
        for address in interface.private_ip_addresses:
            interface.subnet.del_subnet_ip(address["PrivateIpAddress"])


def release(instance: Any) -> None:
    """Detach an ended instance's interfaces; delete those made with it."""
    for interface in list(instance.nics.values()):
        instance.detach_eni(interface)
        if interface.delete_on_termination:
            remove(instance.ec2_backend, interface.id)
    instance.nics = {}
    # Both belong to the subnet again; moto would free them a second time in __del__.
    instance._private_ips = set()
    instance._subnet_id = None


def _create() -> Callable[..., Any]:
    """Return moto's method, which now takes an address and refuses unknown groups."""
    original = vars(NetworkInterfaceBackend)["create_network_interface"]

    def create(
        backend: Any,
        subnet: Any,
        private_ip_address: Any,
        private_ip_addresses: Any = None,
        group_ids: Any = None,
        *args: Any,
        **named: Any,
    ) -> Any:
        security_groups.existing(backend, group_ids or ())
        subnet = backend.get_subnet(subnet) if isinstance(subnet, str) else subnet
        address = _reserve(subnet, _first(private_ip_address))
        interface = original(
            backend, subnet, address, private_ip_addresses, group_ids, *args, **named
        )
        subnet._subnet_ips[address] = interface
        return interface

    return create


def _first(address: Any) -> str | None:
    return (address[0] if address else None) if isinstance(address, list) else address


def _reserve(subnet: Any, address: str | None) -> str:
    """Reserve an address of the subnet for one interface."""
    try:
        if not address:
            return str(subnet.get_available_subnet_ip(None))
        owner = subnet._subnet_ips.get(address)
        # An instance in the making has reserved the address of its first interface.
        if not isinstance(owner, Instance) or owner.nics:
            subnet.request_ip(address, None)
    except StopIteration:
        message = f"There are not enough free addresses in subnet '{subnet.id}'"
        raise ec2_error("InsufficientFreeAddressesInSubnet", message) from None
    except Exception as error:
        raise address_refusal(address, error) from error
    return address


def _delete(backend: Any, eni_id: str) -> None:
    interface = backend.get_network_interface(eni_id)
    if interface.instance is not None:
        message = f"Network interface '{eni_id}' is currently in use."
        raise ec2_error("InvalidParameterValue", message)
    remove(backend, eni_id)


def _check_group_unused(backend: Any, group_id: str) -> None:
    used_by_interface = any(group_id in _group_ids(row) for row in backend.enis.values())
    named_by_rule = any(
        rule.source_group.get("GroupId") == group_id
        for groups in backend.groups.values()
        for group in groups.values()
        for rule in (*group.ingress_rules, *group.egress_rules)
        if group.id != group_id
    )
    if used_by_interface or named_by_rule:
        message = f"resource {group_id} has a dependent object"
        raise ec2_error("DependencyViolation", message)


def _group_ids(interface: Any) -> set[str]:
    return {group.id for group in interface.group_set}


def _from_stack(
    _cls: Any, /, _name: str, body: Mapping[str, Any], account_id: str, region_name: str, **_: Any
) -> Any:
    properties = body["Properties"]
    interface = ec2_backends[account_id][region_name].create_network_interface(
        properties["SubnetId"],
        properties.get("PrivateIpAddress"),
        group_ids=properties.get("GroupSet"),
        description=properties.get("Description"),
    )
    interface.add_tags({tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()})
    return interface


def _delete_from_stack(
    _cls: Any, /, name: str, _body: Any, account_id: str, region_name: str, **_: Any
) -> None:
    backend = ec2_backends[account_id][region_name]
    if name in backend.enis:
        backend.delete_network_interface(name)
