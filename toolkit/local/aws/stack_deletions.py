"""Deleting the stack resources that moto can make and not delete: routes, gateways, endpoints.

What is gone already counts as deleted, as with CloudFormation.
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.nat_gateways import NatGateway
from moto.ec2.models.route_tables import Route, RouteTable
from moto.ec2.models.security_groups import SecurityGroupIngress
from moto.ec2.models.subnets import SubnetRouteTableAssociation
from moto.ec2.models.vpcs import VPCEndPoint
from moto.ec2.models.vpn_gateway import VPCGatewayAttachment

from toolkit.local.aws import network_interfaces

if TYPE_CHECKING:
    from toolkit.local.aws.moto_patches import Patches

Removal = Callable[[Any, Any], None]  # (moto's EC2 of the region, the resource)


def install(patches: Patches) -> None:
    """Give each of these classes the `delete` that moto's CloudFormation looks for."""
    for resource_class, remove in _REMOVALS.items():
        patches.replace(resource_class, "delete", _method(remove))


def _method(remove: Removal) -> Callable[[Any, str, str], None]:
    def delete(resource: Any, account_id: str, region_name: str) -> None:
        remove(ec2_backends[account_id][region_name], resource)

    return delete


def _route(backend: Any, route: Any) -> None:
    if route.route_table.id in backend.route_tables:
        route.route_table._routes.pop(route.id, None)


def _association(backend: Any, association: Any) -> None:
    table = backend.route_tables.get(association.route_table_id)
    if table is None:
        return
    for key, subnet_id in list(table._associations.items()):
        if subnet_id == association.subnet_id:
            del table._associations[key]


def _table(backend: Any, table: Any) -> None:
    backend.delete_route_table(table.id)


def _attachment(backend: Any, attachment: Any) -> None:
    backend.detach_internet_gateway(attachment.gateway_id, attachment.vpc_id)


def _internet_gateway(backend: Any, gateway: Any) -> None:
    backend.delete_internet_gateway(gateway.id)


def _nat_gateway(backend: Any, gateway: Any) -> None:
    backend.delete_nat_gateway(gateway.id)
    network_interfaces.remove(backend, gateway._eni.id)


def _address(backend: Any, address: Any) -> None:
    backend.release_address(allocation_id=address.allocation_id)


def _launch_template(backend: Any, template: Any) -> None:
    if template.id in backend.launch_templates:
        backend.delete_launch_template(None, template.id)


def _endpoint(backend: Any, endpoint: Any) -> None:
    for eni_id in endpoint.network_interface_ids or ():
        network_interfaces.remove(backend, eni_id)
    for table_id in endpoint.route_table_ids or ():
        table = backend.route_tables.get(table_id)
        routes = table._routes if table else {}
        for key, route in list(routes.items()):
            if route.vpc_endpoint_id == endpoint.id:
                del routes[key]
    backend.vpc_end_points.pop(endpoint.id, None)


def _ingress(_backend: Any, resource: Any) -> None:
    """Drop the rule that a resource of these properties made."""
    properties = resource.properties
    rules = resource.security_group.ingress_rules
    for rule in list(rules):
        matches = (
            str(rule.ip_protocol) == str(properties["IpProtocol"])
            and str(rule.from_port or "") == str(properties.get("FromPort") or "")
            and str(rule.to_port or "") == str(properties.get("ToPort") or "")
            and properties.get("SourceSecurityGroupId") in (None, rule.source_group.get("GroupId"))
            and properties.get("CidrIp") in (None, rule.cidr_ipv4)
        )
        if matches:
            rules.remove(rule)
            return


_REMOVALS: dict[type, Removal] = {
    Route: _route,
    SubnetRouteTableAssociation: _association,
    RouteTable: _table,
    VPCGatewayAttachment: _attachment,
    InternetGateway: _internet_gateway,
    LaunchTemplate: _launch_template,
    NatGateway: _nat_gateway,
    ElasticAddress: _address,
    VPCEndPoint: _endpoint,
    SecurityGroupIngress: _ingress,
}
