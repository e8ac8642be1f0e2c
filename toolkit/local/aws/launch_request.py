"""Merges a call and its launch template into one complete launch. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.local.aws.aws_errors import ec2_error

USER_DATA_LIMIT = 16 * 1024  # bytes before base64, as EC2 documents
TAG_KEY_LIMIT, TAG_VALUE_LIMIT, TAG_LIMIT = 128, 256, 50
SPOT, ON_DEMAND = "spot", "on-demand"
# Members of a launch that call and template merge key by key; all others the call replaces.
_MERGED = ("MetadataOptions", "Placement", "Monitoring")


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything the instances of one launch have in common."""

    image_id: str
    instance_type: str
    market: str = ON_DEMAND
    max_price: str | None = None
    user_data: str | None = None  # base64, as it is stored and shown
    subnet_id: str | None = None
    zone: str | None = None
    private_ip: str | None = None
    public_ip: bool | None = None
    group_ids: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    nics: tuple[Mapping[str, Any], ...] = ()
    key_name: str | None = None
    profile: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    shutdown: str = "stop"
    disks: tuple[Mapping[str, Any], ...] | None = None
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    monitoring: bool = False
    ebs_optimized: bool = False
    termination_protection: bool = False  # DisableApiTermination
    template: tuple[str, int] | None = None
    client_token: str = ""
    placement_group: str = ""

    @property
    def instance_tags(self) -> Mapping[str, str]:
        """Return the tags each instance is born with."""
        return self.tags.get("instance", {})

    @property
    def primary_interface(self) -> str | None:
        """Return the id of an existing interface that the instance attaches first."""
        return self.nics[0].get("NetworkInterfaceId") if self.nics else None

    def with_place(self, *, subnet_id: str | None, zone: str | None) -> Launch:
        """Return the same launch in another place; an interface moves along."""
        nics = self.nics
        if subnet_id and nics:
            nics = ({**nics[0], "SubnetId": subnet_id}, *nics[1:])
        return replace(self, subnet_id=subnet_id, zone=zone, nics=nics)


def parse_bool(value: Any) -> bool | None:
    """Return a boolean from the API's, a template's or a file's spelling."""
    if value is None or isinstance(value, bool):
        return value
    return str(value).lower() == "true"


def merge(call: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the launch's parameters: the call's, else the template's.

    Tags add up, the call's winning key by key, as EC2 does.
    """
    params = {key: value for key, value in template.items() if value is not None}
    for key, value in call.items():
        if value is None or value in ([], {}):
            continue
        if key in _MERGED and isinstance(params.get(key), Mapping):
            params[key] = {**params[key], **value}
        elif key == "TagSpecifications":
            params[key] = [*params.get(key, []), *value]
        else:
            params[key] = value
    return params


def tags_by_type(specifications: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return tag specifications as resource type → tags; a later one wins."""
    tags: dict[str, dict[str, str]] = {}
    for specification in specifications or ():
        resource_tags = tags.setdefault(str(specification["ResourceType"]), {})
        for tag in specification.get("Tags", ()):
            resource_tags[str(tag["Key"])] = str(tag.get("Value", ""))
    for type_tags in tags.values():
        check_tags(type_tags)
    return tags


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse what EC2 refuses in tags."""
    user_keys = [key for key in tags if not key.startswith("aws:")]
    if len(user_keys) > TAG_LIMIT:
        raise ec2_error("TagLimitExceeded", f"More than {TAG_LIMIT} tags specified")
    for key, value in tags.items():
        if not 0 < len(key) <= TAG_KEY_LIMIT:
            message = f"Tag key exceeds the maximum length of {TAG_KEY_LIMIT} characters"
            raise ec2_error("InvalidParameterValue", message)
        if len(value) > TAG_VALUE_LIMIT:
            message = f"Tag value exceeds the maximum length of {TAG_VALUE_LIMIT} characters"
            raise ec2_error("InvalidParameterValue", message)


def user_data_bytes(encoded: str | None) -> bytes:
    """Return what the instance reads as its user data."""
    return base64.b64decode(encoded) if encoded else b""


def _checked_user_data(value: Any) -> str | None:
    if not value:
        return None
    encoded = str(value)
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ec2_error(
            "InvalidUserData.Malformed", "Invalid BASE64 encoding of user data"
        ) from None
    if len(raw) > USER_DATA_LIMIT:
        raise ec2_error("InvalidParameterValue", "User data is limited to 16384 bytes")
    return encoded


def _market(params: Mapping[str, Any]) -> tuple[str, str | None]:
    options = params.get("InstanceMarketOptions") or {}
    if options.get("MarketType") != SPOT:
        return ON_DEMAND, None
    price = (options.get("SpotOptions") or {}).get("MaxPrice")
    return SPOT, str(price) if price else None


def _profile(value: Any) -> dict[str, str]:
    if isinstance(value, str):  # CloudFormation's AWS::EC2::Instance gives the name itself
        return {"Name": value}
    return {key: str(value[key]) for key in ("Name", "Arn") if (value or {}).get(key)}


def _check_network(params: Mapping[str, Any], nics: Sequence[Mapping[str, Any]]) -> None:
    if not nics:
        return
    clashes = {
        "SubnetId": "subnet ID",
        "SecurityGroupIds": "security groups",
        "SecurityGroups": "security groups",
        "PrivateIpAddress": "private IP address",
    }
    for key, description in clashes.items():
        if params.get(key):
            message = (
                f"Network interfaces and an instance-level {description} may not be specified "
                "on the same request"
            )
            raise ec2_error("InvalidParameterCombination", message)


def _interfaces(params: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the interfaces in the API's spelling, the primary first."""
    nics = []
    for interface in params.get("NetworkInterfaces") or ():
        nic = dict(interface)
        nic.setdefault("DeviceIndex", 0)
        nic["DeviceIndex"] = int(nic["DeviceIndex"])
        if "GroupSet" in nic:  # CloudFormation's spelling
            nic["Groups"] = nic.pop("GroupSet")
        public = parse_bool(nic.get("AssociatePublicIpAddress"))
        if public is not None:
            nic["AssociatePublicIpAddress"] = public
        # An interface that exists before the instance outlives it.
        deletion = parse_bool(nic.get("DeleteOnTermination"))
        nic["DeleteOnTermination"] = not nic.get("NetworkInterfaceId") and deletion is not False
        nics.append(nic)
    return tuple(sorted(nics, key=lambda nic: int(nic["DeviceIndex"])))


def launch_of(params: Mapping[str, Any], *, template: tuple[str, int] | None = None) -> Launch:
    """Check merged parameters and return them as a launch."""
    nics = _interfaces(params)
    _check_network(params, nics)
    primary = nics[0] if nics else {}
    if not params.get("ImageId"):
        raise ec2_error("MissingParameter", "The request must contain the parameter ImageId")
    market, max_price = _market(params)
    placement = params.get("Placement") or {}
    monitoring = params.get("Monitoring")
    if isinstance(monitoring, Mapping):
        monitoring = monitoring.get("Enabled")
    disks = params.get("BlockDeviceMappings")
    return Launch(
        image_id=str(params["ImageId"]),
        instance_type=str(params.get("InstanceType") or "m1.small"),
        market=market,
        max_price=max_price,
        user_data=_checked_user_data(params.get("UserData")),
        subnet_id=primary.get("SubnetId") or params.get("SubnetId"),
        zone=placement.get("AvailabilityZone") or params.get("AvailabilityZone"),
        private_ip=primary.get("PrivateIpAddress") or params.get("PrivateIpAddress"),
        public_ip=primary.get("AssociatePublicIpAddress"),
        group_ids=tuple(params.get("SecurityGroupIds") or ()),
        group_names=tuple(params.get("SecurityGroups") or ()),
        nics=nics,
        key_name=params.get("KeyName"),
        profile=_profile(params.get("IamInstanceProfile")),
        metadata=dict(params.get("MetadataOptions") or {}),
        shutdown=str(params.get("InstanceInitiatedShutdownBehavior") or "stop"),
        disks=tuple(disks) if disks else None,
        tags=tags_by_type(params.get("TagSpecifications") or ()),
        monitoring=bool(parse_bool(monitoring)),
        ebs_optimized=bool(parse_bool(params.get("EbsOptimized"))),
        termination_protection=bool(parse_bool(params.get("DisableApiTermination"))),
        template=template,
        client_token=str(params.get("ClientToken") or ""),
        placement_group=str(placement.get("GroupName") or ""),
    )
