"""Turns moto's row of an instance into a driver's input for its machine."""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv4Network
from typing import TYPE_CHECKING

from toolkit.local.aws.launch_request import user_data_bytes
from toolkit.local.machines.driver import AttachedVolume, MachineSpec

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.local.aws.instance_tables import LocalInstance


def machine_spec(instance: LocalInstance, *, file_systems: Path, port: int) -> MachineSpec:
    """Return the machine of an instance.

    An instance with a public address runs in the host's network, the local stand-in for
    an internet gateway. Every other one has its own namespace.
    """
    row = instance.row
    nic = row.nics[0]
    public = bool(row.public_ip)
    vpc = row.ec2_backend.get_vpc(nic.subnet.vpc_id)
    prefix = IPv4Network(nic.subnet.cidr_block).prefixlen
    address = IPv4Interface(f"{nic.private_ip_address}/{prefix}")
    environment = {}
    if public:
        service = f"http://127.0.0.1:{port}/_imds/{instance.id}"
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = service
    return MachineSpec(
        instance_id=instance.id,
        hostname=str(row.private_dns_name).split(".", 1)[0],
        image_id=row.image_id,
        address=None if public else address,
        mac=nic.mac_address,
        fs_root=file_systems,
        host_network=public,
        environment=environment,
        vpc_id=vpc.id,
        routes=(IPv4Network(vpc.cidr_block),),
        user_data=user_data_bytes(instance.user_data),
        volumes=tuple(AttachedVolume(key, gib) for key, gib in instance.volumes.items()),
    )
