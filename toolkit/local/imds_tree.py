"""The metadata service's tree: an instance's facts about itself, built from moto's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolkit.local.aws.iam.principals import ROTATION, iso, role_of_profile
from toolkit.local.aws.launch_request import user_data_bytes
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from toolkit.local.aws.iam.principals import Sessions
    from toolkit.local.aws.instance_tables import LocalInstance

VERSIONS = ("1.0", "2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "latest")

# A leaf is text (or bytes), a branch maps names to more of them.
Tree = Mapping[str, "Tree | str | bytes"]


def tree(instance: LocalInstance, now: float, sessions: Sessions) -> dict[str, Any]:
    """Return everything below /latest, as it is at this moment."""
    root: dict[str, Any] = {
        "dynamic": {"instance-identity": {"document": _identity(instance)}},
        "meta-data": _metadata(instance, now, sessions),
    }
    data = user_data_bytes(instance.user_data)
    if data:
        root["user-data"] = data
    return root


def _metadata(instance: LocalInstance, now: float, sessions: Sessions) -> dict[str, Any]:
    row = instance.row
    host = row.private_dns_name or ""
    data: dict[str, Any] = {
        "ami-id": row.image_id,
        "ami-launch-index": str(row.ami_launch_index),
        "ami-manifest-path": "(unknown)",
        "block-device-mapping": {"ami": "xvda", "root": row.root_device_name or "/dev/xvda"},
        "events": {"maintenance": {"history": "[]", "scheduled": _scheduled_events(instance)}},
        "hostname": host,
        "instance-action": "none",
        "instance-id": instance.id,
        "instance-life-cycle": instance.pool.market,
        "instance-type": row.instance_type,
        "local-hostname": host,
        "local-ipv4": row.private_ip or "",
        "network": {
            "interfaces": {
                "macs": {nic.mac_address: _nic(instance, nic) for nic in _nics(instance)}
            }
        },
        "placement": {
            "availability-zone": instance.pool.zone,
            "availability-zone-id": _zone_id(instance),
            "region": instance.region,
        },
        "profile": "default-hvm",
        "reservation-id": _reservation_id(instance),
        "security-groups": "\n".join(group.name for group in row.security_groups),
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if row.nics:
        data["mac"] = row.nics[0].mac_address
    if row.public_ip:
        data |= {"public-ipv4": row.public_ip, "public-hostname": row.public_dns_name}
    _add_optional(data, instance, now, sessions)
    return data


def _add_optional(
    data: dict[str, Any], instance: LocalInstance, now: float, sessions: Sessions
) -> None:
    """Add the branches that are there only sometimes."""
    profile = instance.row.iam_instance_profile
    if profile:
        data["iam"] = _iam(instance, str(profile["Arn"]), now, sessions)
    if instance.row.metadata_options.instance_metadata_tags == "enabled":
        visible_tags = {
            key: value for key, value in instance.tags.items() if not key.startswith("aws:")
        }
        data["tags"] = {"instance": {k: v for k, v in visible_tags.items() if "/" not in k}}
    if instance.rebalance_time is not None:
        notice = json.dumps({"noticeTime": iso(instance.rebalance_time)})
        data["events"]["recommendations"] = {"rebalance": notice}
    if instance.notice is not None:
        termination_time = iso(instance.notice.time)
        action = json.dumps({"action": "terminate", "time": termination_time})
        data["spot"] = {"instance-action": action, "termination-time": termination_time}


def _scheduled_events(instance: LocalInstance) -> str:
    """Return events in the metadata service's own format of dates."""
    events = [
        {
            "NotBefore": datetime.fromtimestamp(start_time, UTC).strftime("%d %b %Y %H:%M:%S GMT"),
            "Code": code,
            "Description": f"The instance is scheduled for {code}",
            "EventId": f"instance-event-{instance.id[2:]}",
            "State": "active",
        }
        for code, start_time in instance.events
    ]
    return json.dumps(events)


def _nics(instance: LocalInstance) -> list[Any]:
    return list(instance.row.nics.values())


def _nic(instance: LocalInstance, nic: Any) -> dict[str, str]:
    vpc = instance.row.ec2_backend.get_vpc(nic.subnet.vpc_id)
    data = {
        "device-number": str(nic.device_index or 0),
        "interface-id": nic.id,
        "local-hostname": instance.row.private_dns_name or "",
        "local-ipv4s": nic.private_ip_address,
        "mac": nic.mac_address,
        "owner-id": ACCOUNT,
        "security-group-ids": "\n".join(group.id for group in nic.group_set),
        "security-groups": "\n".join(group.name for group in nic.group_set),
        "subnet-id": nic.subnet.id,
        "subnet-ipv4-cidr-block": nic.subnet.cidr_block,
        "vpc-id": vpc.id,
        "vpc-ipv4-cidr-block": vpc.cidr_block,
        "vpc-ipv4-cidr-blocks": vpc.cidr_block,
    }
    if nic.public_ip:
        data["public-ipv4s"] = nic.public_ip
    return data


def _zone_id(instance: LocalInstance) -> str:
    nics = _nics(instance)
    return str(nics[0].subnet.availability_zone_id) if nics else ""


def _reservation_id(instance: LocalInstance) -> str:
    for reservation in instance.row.ec2_backend.reservations.values():
        if instance.row in reservation.instances:
            return str(reservation.id)
    return ""


def _identity(instance: LocalInstance) -> str:
    row = instance.row
    return json.dumps(
        {
            "accountId": ACCOUNT,
            "architecture": "x86_64",
            "availabilityZone": instance.pool.zone,
            "billingProducts": None,
            "imageId": row.image_id,
            "instanceId": instance.id,
            "instanceType": row.instance_type,
            "kernelId": None,
            "pendingTime": row.launch_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "privateIp": row.private_ip,
            "ramdiskId": None,
            "region": instance.region,
            "version": "2017-09-30",
        },
        indent=2,
    )


def _iam(instance: LocalInstance, arn: str, now: float, sessions: Sessions) -> dict[str, Any]:
    """Return the profile and its role's credentials."""
    role = role_of_profile(arn)
    data: dict[str, Any] = {
        "info": json.dumps(
            {
                "Code": "Success",
                "LastUpdated": iso(now - now % ROTATION),
                "InstanceProfileArn": arn,
                "InstanceProfileId": str(instance.row.iam_instance_profile.get("Id") or ""),
            }
        )
    }
    if role:
        session = sessions.of_instance(instance.id, instance.region, role, now)
        data["security-credentials"] = {role: session.document()}
    return data
