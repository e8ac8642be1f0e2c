"""Rights that a launch needs: every resource it uses or creates, tags, the role.

Sources: Service Authorization Reference for Amazon EC2, RunInstances and CreateFleet; EC2 User
Guide, "Grant permission to tag Amazon EC2 resources during creation". A fleet of type instant runs
instances in the caller's name (EC2 User Guide, "EC2 Fleet prerequisites"). The reference says of
CreateFleet: what a launch template specifies is a matter of RunInstances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moto.core.parse import PROTOCOL_PARSERS
from moto.core.utils import get_service_model
from moto.iam.models import iam_backends

from toolkit.local.aws import create_instances, fleet_launches
from toolkit.local.aws.iam.policy import Request
from toolkit.local.aws.iam.principals import role_of_profile
from toolkit.local.aws.iam.role_policies import role_named
from toolkit.local.aws.launch_request import SPOT, Launch, merge, tags_by_type
from toolkit.local.options import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.local.aws.iam.ec2_requests import Place
    from toolkit.local.aws.run_instances import Compute

ACTIONS: Final = ("RunInstances", "CreateFleet")
SPOT_ROLE: Final = "spot.amazonaws.com"
_METADATA: Final = {
    "HttpTokens": ("ec2:MetadataHttpTokens", "optional"),
    "HttpEndpoint": ("ec2:MetadataHttpEndpoint", "enabled"),
    "HttpPutResponseHopLimit": ("ec2:MetadataHttpPutResponseHopLimit", "1"),
    "InstanceMetadataTags": ("ec2:InstanceMetadataTags", "disabled"),
}
_OVERRIDE_KEYS: Final = {
    "InstanceType": "ec2:InstanceType",
    "AvailabilityZone": "ec2:AvailabilityZone",
}
_MARKETS: Final = {SPOT: "spot"}


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch as it would be made, with the parameters that `Launch` leaves out."""

    launch: Launch
    params: Mapping[str, Any]


def parse(action: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Return a call's form as nested parameters, by moto's own parser."""
    operation = get_service_model("ec2").operation_model(action)
    parser = PROTOCOL_PARSERS["ec2"](operation, map_type=dict)
    parsed: dict[str, Any] = parser.parse({"values": dict(params)})
    return parsed


def requests(
    place: Place, compute: Compute, action: str, form: Mapping[str, str]
) -> Iterator[Request]:
    """Yield what a launch needs. Raises EC2's error for an impossible launch."""
    params = parse(action, form)
    if action == "RunInstances":
        yield from _run(place, _merged(place, compute, params))
        return
    yield from _fleet_itself(place, compute, params)
    for market in fleet_launches.capacities(params):
        for made in fleet_launches.fleet_launches(compute, place.backend, params, market):
            yield from _run(place, _Launch(made.launch, made.params))


def _merged(place: Place, compute: Compute, params: Mapping[str, Any]) -> _Launch:
    specification = params.get("LaunchTemplate")
    merged = dict(params)
    if specification:
        merged = merge(params, compute.template(place.region, specification).data)
    launch = compute.launch_of_call(place.region, params)
    return _Launch(create_instances.place(place.backend, launch), merged)


def _fleet_itself(place: Place, compute: Compute, params: Mapping[str, Any]) -> Iterator[Request]:
    """Yield what CreateFleet itself needs: nothing of what its launch templates say.

    It has fewer condition keys than RunInstances: none for metadata options or markets.
    """
    tags = tags_by_type(params.get("TagSpecifications") or ())
    yield Request("ec2:CreateFleet", place.arn("fleet"), tag_keys(tags.get("fleet", {})))
    for config in params.get("LaunchTemplateConfigs") or ():
        version = compute.template(place.region, config.get("LaunchTemplateSpecification") or {})
        yield _used_by_fleet(place, "launch-template", version.template.id)
        for override in config.get("Overrides") or [{}]:
            yield from _override(place, override, tags.get("instance", {}))
    for kind, values in tags.items():
        yield _tagging(place, kind, values, "CreateFleet")


def _override(
    place: Place, override: Mapping[str, Any], tags: Mapping[str, str]
) -> Iterator[Request]:
    facts: dict[str, str | tuple[str, ...]] = {
        _OVERRIDE_KEYS[name]: str(override[name]) for name in _OVERRIDE_KEYS if override.get(name)
    }
    yield Request("ec2:CreateFleet", place.arn("instance"), {**facts, **tag_keys(tags)})
    group = (override.get("Placement") or {}).get("GroupName")
    for kind, name in (
        ("image", override.get("ImageId")),
        ("subnet", override.get("SubnetId")),
        ("placement-group", group),
    ):
        if name:
            yield _used_by_fleet(place, kind, str(name))


def _used_by_fleet(place: Place, kind: str, name: str) -> Request:
    return Request("ec2:CreateFleet", place.arn(kind, name), place.tags(name))


def _run(place: Place, made: _Launch) -> Iterator[Request]:
    launch, shared = made.launch, _shared(place, made.launch)

    def on(kind: str, name: str, **context: str) -> Request:
        return Request("ec2:RunInstances", place.arn(kind, name), {**shared, **context})

    yield from (
        Request("ec2:RunInstances", place.arn(kind), {**shared, **facts})
        for kind, facts in _created(place, launch)
    )
    yield on("image", launch.image_id, **{"ec2:ImageID": launch.image_id},
             **place.tags(launch.image_id))  # fmt: skip
    for kind, name in _used(made):
        yield on(kind, name, **place.tags(name))
    for kind, _ in _created(place, launch):  # moto keeps the template's own tags with the others
        if launch.tags.get(kind):
            yield _tagging(place, kind, launch.tags[kind], "RunInstances")
    if launch.profile:
        yield from _passed_role(place, launch)
    if launch.market == SPOT:
        yield _service_role()


def _shared(place: Place, launch: Launch) -> dict[str, str]:
    """Return the keys that all resources of a launch have."""
    if launch.template is None:
        return {}
    return {
        "ec2:LaunchTemplate": place.arn("launch-template", launch.template[0]),
        "ec2:IsLaunchTemplateResource": "true",
    }


def _created(
    place: Place, launch: Launch
) -> Iterator[tuple[str, dict[str, str | tuple[str, ...]]]]:
    """Yield each kind of resource that the launch creates, with its keys."""
    zone = {"ec2:AvailabilityZone": str(launch.zone)}
    for kind in fleet_launches.TAGGED:
        facts: dict[str, str | tuple[str, ...]] = {**zone, **tag_keys(launch.tags.get(kind, {}))}
        if kind == "instance":
            facts |= _instance_facts(launch)
        elif kind == "volume":
            facts |= _volume_facts(launch)
        elif launch.subnet_id:
            facts["ec2:Subnet"] = place.arn("subnet", launch.subnet_id)
        yield kind, facts
    if launch.market == SPOT:
        yield "spot-instances-request", tag_keys(launch.tags.get("spot-instances-request", {}))


def _instance_facts(launch: Launch) -> dict[str, str]:
    facts = {
        "ec2:InstanceType": launch.instance_type,
        "ec2:InstanceMarketType": _MARKETS.get(launch.market, "on-demand"),
        **{key: str(launch.metadata.get(name) or default)
           for name, (key, default) in _METADATA.items()},
    }  # fmt: skip
    if launch.profile:
        facts["ec2:InstanceProfile"] = _profile_arn(launch)
    return facts


def _volume_facts(launch: Launch) -> dict[str, str]:
    disk = (launch.disks or ({},))[0].get("Ebs") or {}
    names = {"VolumeType": "ec2:VolumeType", "VolumeSize": "ec2:VolumeSize"}
    facts = {key: str(disk[name]) for name, key in names.items() if disk.get(name)}
    return facts | {"ec2:Encrypted": str(disk.get("Encrypted", False)).lower()}


def _used(made: _Launch) -> Iterator[tuple[str, str]]:
    """Yield kind and id of each resource that the launch uses."""
    launch, params = made.launch, made.params
    if launch.template is not None:
        yield "launch-template", launch.template[0]
    if launch.subnet_id:
        yield "subnet", launch.subnet_id
    groups = {group for nic in launch.nics for group in nic.get("Groups") or ()}
    for group in sorted(groups.union(launch.group_ids, launch.group_names)):
        yield "security-group", group
    if launch.key_name:
        yield "key-pair", launch.key_name
    placement = (params.get("Placement") or {}).get("GroupName")
    if placement:
        yield "placement-group", str(placement)
    target = (params.get("CapacityReservationSpecification") or {}).get(
        "CapacityReservationTarget"
    ) or {}
    if target.get("CapacityReservationId"):
        yield "capacity-reservation", str(target["CapacityReservationId"])
    for disk in launch.disks or ():
        snapshot = (disk.get("Ebs") or {}).get("SnapshotId")
        if snapshot:
            yield "snapshot", str(snapshot)


def _passed_role(place: Place, launch: Launch) -> Iterator[Request]:
    role = role_named(role_of_profile(_profile_arn(launch)) or "")
    if role is not None:
        context = {
            "iam:PassedToService": "ec2.amazonaws.com",
            "iam:AssociatedResourceArn": place.arn("instance"),
        }
        yield Request("iam:PassRole", str(role.arn), context)


def _profile_arn(launch: Launch) -> str:
    """Return the ARN of a launch's profile, also by its name."""
    if "Arn" in launch.profile:
        return launch.profile["Arn"]
    for profile in iam_backends[ACCOUNT]["aws"].instance_profiles.values():
        if profile.name == launch.profile.get("Name"):
            return str(profile.arn)
    return ""


def _service_role() -> Request:
    """Return what the account's first spot launch needs.

    EC2 User Guide, "Service-linked role for Spot Instance requests".
    """
    arn = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{SPOT_ROLE}/AWSServiceRoleForEC2Spot"
    return Request("iam:CreateServiceLinkedRole", arn, {"iam:AWSServiceName": SPOT_ROLE})


def _tagging(place: Place, kind: str, tags: Mapping[str, str], action: str) -> Request:
    context = {**tag_keys(tags), "ec2:CreateAction": action}
    return Request("ec2:CreateTags", place.arn(kind), context)


def tag_keys(tags: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    """Return the condition keys of the tags that a request gives."""
    if not tags:
        return {}
    keys: dict[str, str | tuple[str, ...]] = {
        f"aws:RequestTag/{key}": value for key, value in tags.items()
    }
    return keys | {"aws:TagKeys": tuple(tags)}
