"""Making moto instances from a launch, with every attribute they have on EC2."""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models.block_device import BlockDeviceType
from moto.ec2.models.elastic_block_store import VolumeAttachment
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, Reservation
from moto.ec2.utils import random_reservation_id

from toolkit.local.aws import network_interfaces, placement_groups
from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.instance_tables import LocalInstance, Tables
from toolkit.local.aws.launch_request import SPOT, Launch, parse_bool
from toolkit.local.aws.security_groups import existing
from toolkit.local.faults import CapacityPool

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT_GIB = 8


def place(backend: Any, launch: Launch) -> Launch:
    """Return the launch with the subnet and zone that EC2 would choose."""
    interface_id = launch.primary_interface
    if interface_id:
        interface = backend.get_network_interface(interface_id)
        network_interfaces.check_attachable(interface)
        return launch.with_place(
            subnet_id=interface.subnet.id, zone=interface.subnet.availability_zone
        )
    if launch.subnet_id:
        return launch.with_place(
            subnet_id=launch.subnet_id,
            zone=backend.get_subnet(launch.subnet_id).availability_zone,
        )
    subnets = backend.get_default_subnets()
    zone = launch.zone or (min(subnets) if subnets else None)
    if zone is None or zone not in subnets:
        message = f"No default subnet for availability zone: '{zone}'."
        raise ec2_error("MissingInput" if zone is None else "InvalidInput", message)
    return launch.with_place(subnet_id=subnets[zone].id, zone=zone)


def check(backend: Any, launch: Launch) -> None:
    """Refuse unknown images and types, as EC2 does before looking for capacity.

    Refuse also tags for a spot request where there is none.
    """
    if launch.image_id not in backend.amis:
        message = f"The image id '[{launch.image_id}]' does not exist"
        raise ec2_error("InvalidAMIID.NotFound", message)
    state = backend.amis[launch.image_id].state
    if state != "available":
        message = f"The image id '[{launch.image_id}]' is not available: {state}"
        raise ec2_error("InvalidAMIID.Unavailable", message)
    if launch.instance_type not in INSTANCE_TYPES:
        message = f"Invalid value '{launch.instance_type}' for InstanceType."
        raise ec2_error("InvalidParameterValue", message)
    placement_groups.check(backend, launch)
    if launch.market != SPOT and "spot-instances-request" in launch.tags:
        message = (
            "You cannot specify tags for Spot instances requests if there are no Spot instances "
            "requests being created by the request."
        )
        raise ec2_error("InvalidParameterValue", message)
    offerings = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, ())
    type_and_zone = (launch.instance_type, launch.zone)
    if not any(
        (offering["InstanceType"], offering["Location"]) == type_and_zone for offering in offerings
    ):
        message = (
            f"Your requested instance type ({launch.instance_type}) is not supported in your "
            f"requested Availability Zone ({launch.zone})."
        )
        raise ec2_error("Unsupported", message)


def create(tables: Tables, region: str, launch: Launch, count: int) -> Any:
    """Make `count` instances of a placed, granted launch; returns their reservation.

    All or none: when one can't be made, those made before it are taken back.
    """
    backend = tables.ec2(region)
    if launch.private_ip and count > 1:
        message = "A private IP address may be given to one instance only"
        raise ec2_error("InvalidParameterCombination", message)
    groups = _groups(backend, launch)
    reservation = Reservation(random_reservation_id(), owner_id=backend.account_id)
    try:
        for index in range(count):
            instance = _instance(backend, region, launch, groups, index)
            reservation.instances.append(instance)
            _register(tables, region, launch, instance)
            _add_details(backend, launch, instance)
    except BaseException:
        for instance in reservation.instances:
            _discard(tables, backend, instance)
        raise
    backend.reservations[reservation.id] = reservation
    return reservation


def _groups(backend: Any, launch: Launch) -> list[Any]:
    groups = existing(backend, launch.group_ids)
    for name in launch.group_names:
        group = backend.get_security_group_by_name_or_id(name)
        if group is None:
            raise ec2_error("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
        groups.append(group)
    return groups


def _nics(launch: Launch) -> list[dict[str, Any]]:
    if launch.nics:
        return [dict(nic) for nic in launch.nics]
    return [{"DeviceIndex": 0, "SubnetId": launch.subnet_id, "DeleteOnTermination": True}]


def _instance(backend: Any, region: str, launch: Launch, groups: list[Any], index: int) -> Any:
    data = Base64EncodedString(launch.user_data) if launch.user_data else None
    try:
        instance = Instance(
            backend,
            launch.image_id,
            data,
            groups,
            instance_type=launch.instance_type,
            region_name=region,
            subnet_id=launch.subnet_id,
            nics=_nics(launch),
            private_ip=launch.private_ip,
            associate_public_ip=launch.public_ip,
            ami_launch_index=index,
            key_name=launch.key_name,
            client_token=launch.client_token,
            lifecycle=SPOT if launch.market == SPOT else None,
            metadata_options={k: v for k, v in launch.metadata.items() if v is not None},
            instance_initiated_shutdown_behavior=launch.shutdown,
            monitoring_state="enabled" if launch.monitoring else "disabled",
            ebs_optimized=launch.ebs_optimized,
            disable_api_termination=launch.termination_protection,
        )
    except StopIteration:
        message = f"There are not enough free addresses in subnet '{launch.subnet_id}'"
        raise ec2_error("InsufficientFreeAddressesInSubnet", message) from None
    except Exception as error:
        raise network_interfaces.address_refusal(launch.private_ip, error) from error
    if launch.primary_interface:
        # moto reserved an address beside the interface's own.
        subnet = backend.get_subnet(launch.subnet_id)
        for address in instance._private_ips:
            subnet.del_subnet_ip(address)
        instance._private_ips = set()
    if launch.nics and not groups:
        # What DescribeInstances lists for an instance are its primary interface's groups.
        instance.security_groups = list(instance.nics[0].group_set)
    return instance


def _register(tables: Tables, region: str, launch: Launch, row: Any) -> None:
    pool = CapacityPool(launch.instance_type, str(launch.zone), launch.market)
    instance = LocalInstance(
        row,
        region,
        pool,
        launched_at=tables.clock(),
        user_data=launch.user_data,
        request_tags=launch.tags.get("spot-instances-request", {}),
    )
    row.launch_time = tables.utc_now()
    tables.instances[row.id] = instance
    tables.set_state(instance, "pending")
    if launch.market == SPOT:
        row.spot_instance_request_id = f"sir-{secrets.token_hex(4)}"


def _add_details(backend: Any, launch: Launch, instance: Any) -> None:
    """Give the instance its tags, disks, profile and placement group."""
    instance.placement.group_name = launch.placement_group or None
    if launch.template:
        template_id, version = launch.template
        backend.create_tags(
            [instance.id],
            {
                "aws:ec2launchtemplate:id": template_id,
                "aws:ec2launchtemplate:version": str(version),
            },
        )
    if launch.instance_tags:
        backend.create_tags([instance.id], dict(launch.instance_tags))
    for disk in launch.disks or ({"DeviceName": instance.root_device_name, "Ebs": {}},):
        if "Ebs" in disk:
            _attach(backend, launch, instance, disk)
    for nic in instance.nics.values():
        tags = launch.tags.get("network-interface")
        if tags:
            backend.create_tags([nic.id], dict(tags))
    if launch.profile:
        backend.associate_iam_instance_profile(
            instance_id=instance.id,
            iam_instance_profile_name=launch.profile.get("Name"),
            iam_instance_profile_arn=launch.profile.get("Arn"),
        )


def _attach(backend: Any, launch: Launch, instance: Any, disk: Mapping[str, Any]) -> None:
    """Make a volume and attach it, without moto's search through every instance."""
    ebs = disk["Ebs"]
    volume = backend.create_volume(
        size=int(ebs.get("VolumeSize") or _ROOT_GIB),
        zone_name=launch.zone,
        encrypted=bool(parse_bool(ebs.get("Encrypted"))),
        volume_type=ebs.get("VolumeType"),
    )
    device = str(disk["DeviceName"])
    volume.attachment = VolumeAttachment(volume, instance, device, "attached")
    instance.block_device_mapping[device] = BlockDeviceType(
        volume_id=volume.id,
        status=volume.status,
        size=volume.size,
        attach_time=utcnow(),
        delete_on_termination=parse_bool(ebs.get("DeleteOnTermination")) is not False,
    )
    tags = launch.tags.get("volume")
    if tags:
        backend.create_tags([volume.id], dict(tags))


def _discard(tables: Tables, backend: Any, instance: Any) -> None:
    instance.teardown_defaults()
    network_interfaces.release(instance)
    tables.instances.pop(instance.id, None)
    backend.tags.pop(instance.id, None)
