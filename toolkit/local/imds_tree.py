"""The metadata service's tree: an instance's facts about itself, built from moto's rows."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.iam.models import iam_backends

from toolkit.local.aws.launch_request import user_data_bytes
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from toolkit.local.aws.instance_tables import Life

VERSIONS = ("1.0", "2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "latest")
CREDENTIALS_PERIOD = 3600  # seconds between two rotations
CREDENTIALS_LIFE = 6 * 3600  # seconds one set is good for

# A leaf is text (or bytes), a branch maps names to more of them.
Tree = Mapping[str, "Tree | str | bytes"]


def tree(life: Life, now: float) -> dict[str, Any]:
    """Return everything below /latest, as it is at this moment."""
    root: dict[str, Any] = {
        "dynamic": {"instance-identity": {"document": _identity(life)}},
        "meta-data": _metadata(life, now),
    }
    data = user_data_bytes(life.user_data)
    if data:
        root["user-data"] = data
    return root


def _metadata(life: Life, now: float) -> dict[str, Any]:
    instance = life.instance
    host = instance.private_dns_name or ""
    data: dict[str, Any] = {
        "ami-id": instance.image_id,
        "ami-launch-index": str(instance.ami_launch_index),
        "ami-manifest-path": "(unknown)",
        "block-device-mapping": {"ami": "xvda", "root": instance.root_device_name or "/dev/xvda"},
        "events": {"maintenance": {"history": "[]", "scheduled": _scheduled(life)}},
        "hostname": host,
        "instance-action": "none",
        "instance-id": life.id,
        "instance-life-cycle": life.pool.market,
        "instance-type": instance.instance_type,
        "local-hostname": host,
        "local-ipv4": instance.private_ip or "",
        "network": {
            "interfaces": {"macs": {nic.mac_address: _nic(life, nic) for nic in _nics(life)}}
        },
        "placement": {
            "availability-zone": life.pool.zone,
            "availability-zone-id": _zone_id(life),
            "region": life.region,
        },
        "profile": "default-hvm",
        "reservation-id": _reservation_id(life),
        "security-groups": "\n".join(group.name for group in instance.security_groups),
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if instance.nics:
        data["mac"] = instance.nics[0].mac_address
    if instance.public_ip:
        data |= {"public-ipv4": instance.public_ip, "public-hostname": instance.public_dns_name}
    _add_optional(data, life, now)
    return data


def _add_optional(data: dict[str, Any], life: Life, now: float) -> None:
    """Add the branches that are there only sometimes."""
    profile = life.instance.iam_instance_profile
    if profile:
        data["iam"] = _iam(life, str(profile["Arn"]), now)
    if life.instance.metadata_options.instance_metadata_tags == "enabled":
        shown = {key: value for key, value in life.tags.items() if not key.startswith("aws:")}
        data["tags"] = {"instance": {k: v for k, v in shown.items() if "/" not in k}}
    if life.rebalance is not None:
        notice = json.dumps({"noticeTime": iso(life.rebalance)})
        data["events"]["recommendations"] = {"rebalance": notice}
    if life.notice is not None:
        when = iso(life.notice.time)
        action = json.dumps({"action": "terminate", "time": when})
        data["spot"] = {"instance-action": action, "termination-time": when}


def _scheduled(life: Life) -> str:
    """Return events in the metadata service's own format of dates."""
    events = [
        {
            "NotBefore": datetime.fromtimestamp(when, UTC).strftime("%d %b %Y %H:%M:%S GMT"),
            "Code": code,
            "Description": f"The instance is scheduled for {code}",
            "EventId": f"instance-event-{life.id[2:]}",
            "State": "active",
        }
        for code, when in life.events
    ]
    return json.dumps(events)


def _nics(life: Life) -> list[Any]:
    return list(life.instance.nics.values())


def _nic(life: Life, nic: Any) -> dict[str, str]:
    vpc = life.instance.ec2_backend.get_vpc(nic.subnet.vpc_id)
    data = {
        "device-number": str(nic.device_index or 0),
        "interface-id": nic.id,
        "local-hostname": life.instance.private_dns_name or "",
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


def _zone_id(life: Life) -> str:
    nics = _nics(life)
    return str(nics[0].subnet.availability_zone_id) if nics else ""


def _reservation_id(life: Life) -> str:
    for reservation in life.instance.ec2_backend.reservations.values():
        if life.instance in reservation.instances:
            return str(reservation.id)
    return ""


def _identity(life: Life) -> str:
    instance = life.instance
    return json.dumps(
        {
            "accountId": ACCOUNT,
            "architecture": "x86_64",
            "availabilityZone": life.pool.zone,
            "billingProducts": None,
            "imageId": instance.image_id,
            "instanceId": life.id,
            "instanceType": instance.instance_type,
            "kernelId": None,
            "pendingTime": instance.launch_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "privateIp": instance.private_ip,
            "ramdiskId": None,
            "region": life.region,
            "version": "2017-09-30",
        },
        indent=2,
    )


def _iam(life: Life, arn: str, now: float) -> dict[str, Any]:
    """Return the profile and its role's credentials."""
    role = _role(arn)
    data: dict[str, Any] = {
        "info": json.dumps(
            {
                "Code": "Success",
                "LastUpdated": iso(now - now % CREDENTIALS_PERIOD),
                "InstanceProfileArn": arn,
                "InstanceProfileId": str(life.instance.iam_instance_profile.get("Id") or ""),
            }
        )
    }
    if role:
        data["security-credentials"] = {role: credentials(life.id, role, now)}
    return data


def _role(arn: str) -> str | None:
    for profile in iam_backends[ACCOUNT]["aws"].instance_profiles.values():
        if profile.arn == arn and profile.roles:
            return str(profile.roles[0].name)
    return None


def credentials(instance_id: str, role: str, now: float) -> str:
    """Return the role's credentials of this hour; another hour gives others.

    The local cloud does not check signatures, so any key of the right form will do.
    """
    began = now - now % CREDENTIALS_PERIOD
    seed = hashlib.sha256(f"{instance_id}/{role}/{began}".encode()).digest()
    key = base64.b32encode(seed).decode()[:16]
    return json.dumps(
        {
            "Code": "Success",
            "LastUpdated": iso(began),
            "Type": "AWS-HMAC",
            "AccessKeyId": f"ASIA{key}",
            "SecretAccessKey": base64.b64encode(seed).decode()[:40],
            "Token": base64.b64encode(seed * 3).decode(),
            "Expiration": iso(began + CREDENTIALS_LIFE),
        }
    )


def iso(moment: float) -> str:
    """Return a moment as the metadata service writes it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
