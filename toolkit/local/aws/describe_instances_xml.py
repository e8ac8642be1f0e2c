"""Reservations and their instances as XML, and DescribeInstances over it.

moto's general serializer takes seven milliseconds an instance, which is what a
launch of a thousand nodes would then be measuring. This one knows the shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from moto.ec2.responses import EC2Response

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.paging import page

if TYPE_CHECKING:
    from datetime import datetime

    from toolkit.local.aws.moto_patches import Patches

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
PAGE = 1000  # instances in one answer at most, as EC2 has it

Answer = tuple[int, dict[str, str], str]


def install(patches: Patches) -> None:
    """Put this in place of moto's DescribeInstances."""
    patches.replace(EC2Response, "describe_instances", _describe_instances)


def _describe_instances(response: Any) -> Answer:
    response.error_on_dryrun()
    params = response.params
    ids = params.get("InstanceIds") or []
    if ids and params.get("MaxResults"):
        message = "The parameter instancesSet cannot be used with the parameter maxResults"
        raise ec2_error("InvalidParameterCombination", message)
    filters = response._filters_from_querystring()  # noqa: SLF001 - moto's way to read them
    if ids:
        reservations = response.ec2_backend.get_reservations_by_instance_ids(ids, filters=filters)
    else:
        reservations = response.ec2_backend.describe_instances(filters=filters)
    # A page has whole reservations, and counts their instances.
    rows, next_token = page(reservations, params, size=PAGE, weight=lambda row: len(row.instances))
    body = {"reservationSet": [reservation(row) for row in rows], "nextToken": next_token}
    return answer("DescribeInstancesResponse", body)


def answer(name: str, body: Mapping[str, Any]) -> Answer:
    """Return an EC2 answer with this root element."""
    inner = "".join(f"<{key}>{xml(value)}</{key}>" for key, value in _present_members(body))
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{_NAMESPACE}">'
        f"<requestId>local</requestId>{inner}</{name}>"
    )
    return 200, {"Content-Type": "text/xml;charset=UTF-8"}, text


def xml(value: Any) -> str:
    """Return an element's content: members, items, or text.

    A mapping has members, a list has items.
    """
    if isinstance(value, Mapping):
        return "".join(f"<{key}>{xml(item)}</{key}>" for key, item in _present_members(value))
    if isinstance(value, list | tuple):
        return "".join(f"<item>{xml(item)}</item>" for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value))


def _present_members(value: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return ((key, member) for key, member in value.items() if member is not None)


def reservation(row: Any) -> dict[str, Any]:
    """Return a reservation's members."""
    return {
        "reservationId": row.id,
        "ownerId": row.owner_id,
        "groupSet": [],
        "instancesSet": [instance(instance_row) for instance_row in row.instances],
    }


def instance(row: Any) -> dict[str, Any]:
    """Return an instance's members, by their names in EC2's XML."""
    reason = row.state_reason
    profile = row.iam_instance_profile
    return {
        "instanceId": row.id,
        "imageId": row.image_id,
        "instanceState": {"code": row.state_code, "name": row.state},
        "privateDnsName": row.private_dns_name or "",
        "dnsName": row.public_dns_name or "",
        "reason": row.state_transition_reason or "",
        "keyName": row.key_name,
        "amiLaunchIndex": row.ami_launch_index,
        "productCodes": [],
        "instanceType": row.instance_type,
        "launchTime": _moment(row.launch_time),
        "placement": {
            "availabilityZone": row.availability_zone,
            "groupName": row.placement.group_name or "",
            "tenancy": row.placement.tenancy,
        },
        "monitoring": {"state": row.monitoring_state},
        "subnetId": row.subnet_id,
        "vpcId": row.vpc_id,
        "privateIpAddress": row.private_ip_address,
        "ipAddress": row.public_ip_address,
        "sourceDestCheck": row.source_dest_check,
        "groupSet": _groups(row.security_groups),
        "stateReason": {"code": reason.code, "message": reason.message} if reason else None,
        "architecture": row.architecture,
        "rootDeviceType": row.root_device_type,
        "rootDeviceName": row.root_device_name,
        "blockDeviceMapping": [_disk(name, disk) for name, disk in row.get_block_device_mapping],
        "virtualizationType": row.virtualization_type,
        "clientToken": row.client_token or "",
        "tagSet": [{"key": tag["key"], "value": tag["value"]} for tag in row.get_tags()],
        "hypervisor": row.hypervisor,
        "networkInterfaceSet": [_interface(nic) for nic in row.nics.values()],
        "iamInstanceProfile": {"arn": profile["Arn"], "id": profile["Id"]} if profile else None,
        "ebsOptimized": row.ebs_optimized,
        "sriovNetSupport": row.sriov_net_support,
        "instanceLifecycle": row.lifecycle,
        "spotInstanceRequestId": getattr(row, "spot_instance_request_id", None),
        "metadataOptions": _metadata(row.metadata_options),
    }


def _moment(moment: datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z") if moment else None


def _groups(groups: Iterable[Any]) -> list[dict[str, str]]:
    return [{"groupId": group.id, "groupName": group.name} for group in groups]


def _disk(name: str, disk: Any) -> dict[str, Any]:
    return {
        "deviceName": name,
        "ebs": {
            "volumeId": disk.volume_id,
            "status": "attached" if disk.status == "in-use" else disk.status,
            "attachTime": _moment(disk.attach_time),
            "deleteOnTermination": disk.delete_on_termination,
        },
    }


def _interface(nic: Any) -> dict[str, Any]:
    association = None
    if nic.public_ip:
        public_name = nic.instance.public_dns_name
        association = {
            "publicIp": nic.public_ip,
            "publicDnsName": public_name,
            "ipOwnerId": "amazon",
        }
    dns = getattr(nic, "private_dns_name", None)
    return {
        "networkInterfaceId": nic.id,
        "subnetId": nic.subnet.id,
        "vpcId": nic.subnet.vpc_id,
        "description": nic.description,
        "ownerId": nic.owner_id,
        "status": nic.status,
        "macAddress": nic.mac_address,
        "privateIpAddress": nic.private_ip_address,
        "privateDnsName": dns,
        "sourceDestCheck": nic.source_dest_check,
        "interfaceType": nic.interface_type,
        "groupSet": _groups(nic.group_set),
        "attachment": {
            "attachmentId": nic.attachment_id,
            "deviceIndex": nic.device_index,
            "networkCardIndex": 0,
            "status": "attached",
            "attachTime": _moment(nic.attach_time),
            "deleteOnTermination": bool(nic.delete_on_termination),
        },
        "association": association,
        "privateIpAddressesSet": [
            {
                "privateIpAddress": address["PrivateIpAddress"],
                "privateDnsName": dns,
                "primary": bool(address.get("Primary")),
                "association": association if address.get("Primary") else None,
            }
            for address in nic.private_ip_addresses
        ],
    }


def _metadata(options: Any) -> dict[str, Any]:
    return {
        "state": options.state,
        "httpTokens": options.http_tokens,
        "httpPutResponseHopLimit": options.http_put_response_hop_limit,
        "httpEndpoint": options.http_endpoint,
        "httpProtocolIpv6": options.http_protocol_ipv6,
        "instanceMetadataTags": options.instance_metadata_tags,
    }
