"""Actions, resources and condition keys of EC2 calls. Those of launches are in `launches`.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.iam.policy import Request
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.local.aws.instance_tables import Tables

WITHOUT_RESOURCE: Final = frozenset(
    f"Describe{what}"
    for what in (
        "Addresses", "AvailabilityZones", "CapacityReservations", "Images", "Instances",
        "InstanceStatus", "InstanceTopology", "InstanceTypeOfferings", "InstanceTypes",
        "InternetGateways", "LaunchTemplates", "LaunchTemplateVersions",
        "NatGateways", "NetworkInterfaces", "PlacementGroups", "Regions", "RouteTables",
        "SecurityGroups", "Snapshots", "SpotInstanceRequests", "SpotPriceHistory", "Subnets",
        "Tags", "Volumes", "VpcEndpoints", "Vpcs",
    )
) | {"GetEbsDefaultKmsKeyId"}  # fmt: skip
"""Reads for which EC2 has no permissions of a resource."""
ON_INSTANCES: Final = frozenset(
    {"TerminateInstances", "StopInstances", "StartInstances", "RebootInstances",
     "GetConsoleOutput"}
)  # fmt: skip
_ON_ONE: Final = {
    "DeleteNetworkInterface": ("network-interface", "NetworkInterfaceId"),
    "DeleteSnapshot": ("snapshot", "SnapshotId"),
    "DeleteVolume": ("volume", "VolumeId"),
    "DeregisterImage": ("image", "ImageId"),
}
"""Actions on one resource: its kind, and the parameter that names it."""
ON_TAGS: Final = frozenset({"CreateTags", "DeleteTags"})
_INSTANCE: Final = re.compile(r"InstanceId(\.\d+)?")
_RESOURCE: Final = re.compile(r"ResourceId\.\d+")
_TAG: Final = re.compile(r"Tag\.(\d+)\.Key")
_KINDS: Final = {
    "ami": "image", "cr": "capacity-reservation", "eni": "network-interface", "fleet": "fleet",
    "i": "instance", "igw": "internet-gateway", "key": "key-pair", "lt": "launch-template",
    "nat": "natgateway", "pg": "placement-group", "rtb": "route-table", "sg": "security-group",
    "sir": "spot-instances-request", "snap": "snapshot", "subnet": "subnet", "vol": "volume",
    "vpc": "vpc", "vpce": "vpc-endpoint",
}  # fmt: skip
_OWNERLESS: Final = ("image", "snapshot")  # their ARNs have no account
_OPTIONS: Final = {
    "http_tokens": "ec2:MetadataHttpTokens",
    "http_endpoint": "ec2:MetadataHttpEndpoint",
    "http_put_response_hop_limit": "ec2:MetadataHttpPutResponseHopLimit",
    "instance_metadata_tags": "ec2:InstanceMetadataTags",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A region of EC2, with what it knows about resources."""

    tables: Tables
    region: str

    @property
    def backend(self) -> Any:
        """Return moto's EC2 of the region."""
        return self.tables.ec2(self.region)

    def arn(self, kind: str, name: str = "*") -> str:
        """Return a resource's ARN."""
        owner = "" if kind in _OWNERLESS else ACCOUNT
        return f"arn:aws:ec2:{self.region}:{owner}:{kind}/{name}"

    def tags(self, resource_id: str) -> dict[str, str]:
        """Return the condition keys of a resource's tags."""
        tags = self.backend.tags.get(resource_id, {})
        return {
            f"{prefix}:ResourceTag/{key}": str(value)
            for key, value in tags.items()
            for prefix in ("aws", "ec2")
        }


def requests(place: Place, action: str, params: Mapping[str, str]) -> Iterator[Request] | None:
    """Return what a call needs, None for an unknown call."""
    if action in WITHOUT_RESOURCE:
        return iter([Request(f"ec2:{action}", "*")])
    if action in ON_INSTANCES:
        ids = [value for name, value in params.items() if _INSTANCE.fullmatch(name)]
        return (_on_instance(place, action, instance_id) for instance_id in ids)
    if action in _ON_ONE:
        kind, parameter = _ON_ONE[action]
        name = params.get(parameter, "")
        return iter([Request(f"ec2:{action}", place.arn(kind, name), place.tags(name))])
    if action == "CreateImage":
        return _create_image(place, params)
    if action in ON_TAGS:
        return _on_tags(place, action, params)
    return None


def _on_instance(place: Place, action: str, instance_id: str) -> Request:
    return Request(f"ec2:{action}", place.arn("instance", instance_id), _facts(place, instance_id))


def _create_image(place: Place, params: Mapping[str, str]) -> Iterator[Request]:
    """Yield what an image needs: its instance, and what it makes."""
    yield _on_instance(place, "CreateImage", params.get("InstanceId", ""))
    for kind in ("image", "snapshot"):
        yield Request("ec2:CreateImage", place.arn(kind))


def _on_tags(place: Place, action: str, params: Mapping[str, str]) -> Iterator[Request]:
    context: dict[str, str | tuple[str, ...]] = {}
    keys = []
    for name, key in params.items():
        match = _TAG.fullmatch(name)
        if match:
            keys.append(key)
            context[f"aws:RequestTag/{key}"] = params.get(f"Tag.{match[1]}.Value", "")
    context["aws:TagKeys"] = tuple(keys)
    for name, resource_id in params.items():
        if _RESOURCE.fullmatch(name):
            kind = _KINDS.get(resource_id.partition("-")[0])
            if kind is None:
                raise ec2_error("InvalidID", f"The ID '{resource_id}' is not valid")
            facts = _facts(place, resource_id) if kind == "instance" else place.tags(resource_id)
            yield Request(f"ec2:{action}", place.arn(kind, resource_id), {**facts, **context})


def _facts(place: Place, instance_id: str) -> dict[str, str]:
    """Return the condition keys that an instance gives. Raises NotFound."""
    instance = place.tables.instances.get(instance_id)
    if instance is None:
        raise ec2_error(
            "InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist"
        )
    row, options = instance.row, instance.row.metadata_options
    facts = {
        "ec2:InstanceID": instance_id,
        "ec2:InstanceType": str(row.instance_type),
        "ec2:AvailabilityZone": instance.pool.zone,
        "ec2:InstanceMarketType": instance.pool.market,
        **{key: str(getattr(options, name)) for name, key in _OPTIONS.items()},
        **place.tags(instance_id),
    }
    if row.iam_instance_profile:
        facts["ec2:InstanceProfile"] = str(row.iam_instance_profile["Arn"])
    return facts
