"""Launches with DryRun: EC2 checks rights and parameters, and launches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from slurmplugins.cloud import tags
from toolkit.config.hardware import IMAGE_GIB
from toolkit.deploy.preflight.facts import RefusedLaunch
from toolkit.deploy.preflight.uses import uses
from toolkit.deploy.session import BAD_CREDENTIALS, DENIED, error_code
from toolkit.render.burst import launch_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.config.raw import KeyPath
    from toolkit.deploy.images import BaseImage
    from toolkit.deploy.preflight.uses import Use
    from toolkit.deploy.session import Clients

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html: with DryRun this
# is the code of a launch that would be carried out.
WOULD_LAUNCH: Final = "DryRunOperation"
# They say how things stand at this moment, and a launch tries again.
PASSING: Final = frozenset(
    {"InsufficientInstanceCapacity", "RequestLimitExceeded", "Unavailable", "InternalError"}
)
OF_CALLER: Final = frozenset({*DENIED, *BAD_CREDENTIALS})
# The head node's role makes spot's service role; the caller may lack the right.
SPOT_ROLE: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch to try, and its place in cluster.yaml."""

    key_path: KeyPath
    subject: str
    request: Mapping[str, Any]


def builder_launch(config: ClusterConfig, base: BaseImage, subnet: str) -> Launch:
    """Return the launch of an image builder.

    It leaves out the instance profile, which the first build makes.
    """
    disk = {"VolumeSize": IMAGE_GIB, "VolumeType": "gp3", "Encrypted": True}
    interface = {"DeviceIndex": 0, "AssociatePublicIpAddress": True, "SubnetId": subnet}
    request = {
        "ImageId": base.id,
        "InstanceType": config.images.builder_type,
        "NetworkInterfaces": [interface],
        "BlockDeviceMappings": [{"DeviceName": base.root_device, "Ebs": disk}],
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required"},
    }
    return Launch(("images", "builder_type"), "an image builder", request)


def template_launches(config: ClusterConfig, clients: Clients) -> Iterator[Launch]:
    """Yield a launch for each offering and zone whose launch template exists."""
    ec2 = clients.client("ec2")
    own: Any = [{"Name": f"tag:{tags.CLUSTER}", "Values": [config.cluster]}]
    pages = ec2.get_paginator("describe_launch_templates").paginate(Filters=own)
    names = {item["LaunchTemplateName"] for page in pages for item in page["LaunchTemplates"]}
    if not names:
        return
    by_cidr = {
        subnet["CidrBlock"]: subnet["SubnetId"]
        for subnet in ec2.describe_subnets(Filters=own)["Subnets"]
    }
    subnets = {
        zone: by_cidr[str(cidr)]
        for zone, cidr in config.network.zones.items()
        if str(cidr) in by_cidr
    }
    for use in uses(config):
        if use.pool and use.lifecycle != "capacity-block":
            yield from _launches_of(config, use, names, subnets)


def _launches_of(
    config: ClusterConfig, use: Use, names: set[str], subnets: Mapping[str, str]
) -> Iterator[Launch]:
    zonal = config.pools[use.pool].zonal
    for zone in use.zones:
        name = launch_template(config.cluster, use.pool, zone if zonal else "")
        if name not in names or zone not in subnets:
            continue  # the next deploy makes it
        request: dict[str, Any] = {
            "LaunchTemplate": {"LaunchTemplateName": name, "Version": "$Latest"},
            "InstanceType": use.instance_type,
        }
        if not zonal:  # else the template's interfaces name the subnet
            request["SubnetId"] = subnets[zone]
        if use.lifecycle == "spot":
            request["InstanceMarketOptions"] = {"MarketType": "spot"}
        yield Launch(use.key_path, f"{use.lifecycle} {use.instance_type} in {zone}", request)


def refused(ec2: Any, launches: Iterable[Launch]) -> tuple[RefusedLaunch, ...]:
    """Return the launches that EC2 would refuse.

    Raises ClientError where the caller may not launch: that says nothing of the launch.
    """
    refusals = []
    for launch in launches:
        try:
            ec2.run_instances(MinCount=1, MaxCount=1, DryRun=True, **launch.request)
        except ClientError as error:
            code = error_code(error)
            if code in OF_CALLER:
                raise
            if code not in {WOULD_LAUNCH, SPOT_ROLE, *PASSING}:
                text = str(error.response.get("Error", {}).get("Message", ""))
                refusals.append(RefusedLaunch(launch.key_path, launch.subject, code, text))
    return tuple(refusals)
