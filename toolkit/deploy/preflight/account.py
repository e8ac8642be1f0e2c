"""Asks AWS the preflight's questions. Each is a read, or a call with DryRun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.deploy import image_build_stack, image_lock, images
from toolkit.deploy.preflight import launches
from toolkit.deploy.preflight.facts import (
    AccountFacts,
    DefaultKey,
    InstanceType,
    Reservation,
    Unanswered,
)
from toolkit.deploy.preflight.quotas import SERVICE, VcpuQuota, quotas_of
from toolkit.deploy.preflight.uses import uses
from toolkit.deploy.session import BAD_CREDENTIALS, DENIED, error_code
from toolkit.errors import BaseImageMissing, ImageBuildFailed, SlurmPackagesMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.preflight.facts import RefusedLaunch
    from toolkit.deploy.preflight.launches import Launch
    from toolkit.deploy.session import Clients
    from toolkit.errors import ToolkitError
    from toolkit.output import Phase

T = TypeVar("T")

# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetEbsDefaultKmsKeyId.html
AWS_KEY: Final = "alias/aws/ebs"
NO_SUCH_QUOTA: Final = "NoSuchResourceException"


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """The build of an image that is missing, or its problem."""

    launch: Launch | None = None
    base_problem: str = ""
    packages_problem: str = ""
    subnet_problem: str = ""


class Questions:
    """The questions about one cluster's account."""

    def __init__(
        self, config: ClusterConfig, clients: Clients, lock: ImageLock | None, phase: Phase
    ) -> None:
        self._config = config
        self._clients = clients
        self._ec2 = clients.client("ec2")
        self._lock = lock
        self._phase = phase
        self._unanswered: list[Unanswered] = []

    def ask(self) -> AccountFacts:
        """Return the answers.

        Raises ClientError for credentials that AWS doesn't accept.
        """
        identity = self._clients.client("sts").get_caller_identity()
        build = self._ask("image builds", "ec2:DescribeImages and ec2:DescribeSubnets", self._build)
        build = build or ImageBuild()
        refused_launches = self._ask(
            "launches with DryRun", "ec2:RunInstances", lambda: self._refused_launches(build)
        )
        return AccountFacts(
            account=str(identity["Account"]),
            caller=str(identity["Arn"]),
            zones=self._ask("zones", "ec2:DescribeAvailabilityZones", self._zones),
            types=self._ask("instance types", "ec2:DescribeInstanceTypes", self._types),
            offered=self._ask(
                "zones of instance types", "ec2:DescribeInstanceTypeOfferings", self._offered
            ),
            quotas=self._ask("vCPU quotas", "servicequotas:GetServiceQuota", self._quotas) or {},
            reservations=self._reservations(),
            default_key=self._default_key(),
            base_image_problem=build.base_problem,
            slurm_packages_problem=build.packages_problem,
            builder_subnet_problem=build.subnet_problem,
            refused_launches=refused_launches or (),
            unanswered=tuple(self._unanswered),
        )

    def _ask(self, subject: str, right: str, question: Callable[[], T]) -> T | None:
        """Return the answer; without one, keep the reason and return None."""
        self._phase.update(subject)
        try:
            return question()
        except ClientError as error:
            code = error_code(error)
            if code in BAD_CREDENTIALS:
                raise
            reason = Unanswered(subject, right) if code in DENIED else _failed(subject, error)
        except BotoCoreError as error:
            reason = _failed(subject, error)
        self._unanswered.append(reason)
        return None

    def _zones(self) -> frozenset[str]:
        zones = self._ec2.describe_availability_zones(
            Filters=[{"Name": "state", "Values": ["available"]}]
        )["AvailabilityZones"]
        return frozenset(zone["ZoneName"] for zone in zones)

    def _names(self) -> list[str]:
        return sorted({use.instance_type for use in uses(self._config)})

    def _types(self) -> Mapping[str, InstanceType]:
        # A filter and not InstanceTypes: that refuses the whole call for one unknown name.
        pages = self._ec2.get_paginator("describe_instance_types").paginate(
            Filters=[{"Name": "instance-type", "Values": self._names()}]
        )
        return {
            str(item["InstanceType"]): _instance_type(item)
            for page in pages
            for item in page["InstanceTypes"]
        }

    def _offered(self) -> frozenset[tuple[str, str]]:
        pages = self._ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": self._names()}],
        )
        return frozenset(
            (str(item["InstanceType"]), item["Location"])
            for page in pages
            for item in page["InstanceTypeOfferings"]
        )

    def _quotas(self) -> Mapping[str, float]:
        client = self._clients.client("service-quotas")
        values = ((quota, _quota(client, quota)) for quota in quotas_of(self._config))
        return {quota.name: value for quota, value in values if value is not None}

    def _reservations(self) -> Mapping[str, Reservation] | None:
        offerings = (item for pool in self._config.pools.values() for item in pool.offerings)
        if not any(offering.reservation for offering in offerings):
            return {}
        return self._ask(
            "capacity reservations", "ec2:DescribeCapacityReservations", self._list_reservations
        )

    def _list_reservations(self) -> Mapping[str, Reservation]:
        # All of them: the call refuses a list with an unknown id.
        pages = self._ec2.get_paginator("describe_capacity_reservations").paginate()
        found = (_reservation(item) for page in pages for item in page["CapacityReservations"])
        return {item.id: item for item in found}

    def _default_key(self) -> DefaultKey | None:
        key = self._ask(
            "the default key of disks",
            "ec2:GetEbsDefaultKmsKeyId",
            lambda: self._ec2.get_ebs_default_kms_key_id()["KmsKeyId"],
        )
        if key is None:
            return None
        if key.endswith(AWS_KEY):
            return DefaultKey(key, of_customer=False)
        manager = self._ask(
            f"the owner of the key {key}",
            "kms:DescribeKey",
            lambda: self._clients.client("kms").describe_key(KeyId=key)["KeyMetadata"],
        )
        # A caller who may not read it is told of the grant all the same.
        of_customer = manager is None or manager.get("KeyManager") != "AWS"
        return DefaultKey(key, of_customer=of_customer)

    def _build(self) -> ImageBuild:
        """Return what a build would need; an image that exists needs none."""
        try:
            source = image_lock.find_input(self._ec2, self._config, self._lock)
        except BaseImageMissing as error:
            return ImageBuild(base_problem=_text(error))
        except SlurmPackagesMissing as error:
            return ImageBuild(packages_problem=_text(error))
        names = [spec.name for spec in images.required_images(self._config, source)]
        if images.find(self._ec2, names).keys() >= set(names):
            return ImageBuild()
        try:
            subnet = image_build_stack.builder_subnet(self._config, self._clients)
        except ImageBuildFailed as error:
            return ImageBuild(subnet_problem=_text(error))
        return ImageBuild(launches.builder_launch(self._config, source.base, subnet))

    def _refused_launches(self, build: ImageBuild) -> tuple[RefusedLaunch, ...]:
        builder = [build.launch] if build.launch is not None else []
        templates = launches.template_launches(self._config, self._clients)
        return launches.refused(self._ec2, (*builder, *templates))


def _text(error: ToolkitError) -> str:
    return f"{error.message}: {error.next_step}" if error.next_step else error.message


def _failed(subject: str, error: ClientError | BotoCoreError) -> Unanswered:
    return Unanswered(subject, message=str(error))


def _quota(client: Any, quota: VcpuQuota) -> float | None:
    """Return the account's value; None if AWS knows none of the codes."""
    for code in quota.codes:
        try:
            answer = client.get_service_quota(ServiceCode=SERVICE, QuotaCode=code)
        except ClientError as error:
            if error_code(error) != NO_SUCH_QUOTA:
                raise
        else:
            return float(answer["Quota"]["Value"])
    return None


def _instance_type(item: Any) -> InstanceType:
    network = item.get("NetworkInfo", {})
    gpus = item.get("GpuInfo", {}).get("Gpus", ())
    return InstanceType(
        name=str(item["InstanceType"]),
        vcpus=int(item["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(item["MemoryInfo"]["SizeInMiB"]),
        gpus=sum(int(gpu.get("Count", 0)) for gpu in gpus),
        gpu_names=tuple(str(gpu["Name"]) for gpu in gpus if gpu.get("Name")),
        architectures=frozenset(item.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
        usage_classes=frozenset(item.get("SupportedUsageClasses", ())),
        placement_strategies=frozenset(
            item.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())
        ),
        efa_interfaces=int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
        network_cards=int(network.get("MaximumNetworkCards", 1)),
        first_card_has_efa=_first_card_has_efa(network.get("NetworkCards", ())),
    )


def _first_card_has_efa(cards: Iterable[Any]) -> bool | None:
    kinds = [card.get("InterfaceTypes") for card in cards if card.get("NetworkCardIndex") == 0]
    return "efa" in kinds[0] if kinds and kinds[0] else None


def _reservation(item: Any) -> Reservation:
    return Reservation(
        id=str(item["CapacityReservationId"]),
        instance_type=str(item["InstanceType"]),
        zone=str(item.get("AvailabilityZone", "")),
        state=str(item["State"]),
        total=int(item.get("TotalInstanceCount", 0)),
        available=int(item.get("AvailableInstanceCount", 0)),
        is_block=item.get("ReservationType") == "capacity-block",
        ends_at=item.get("EndDate"),
        placement_group=str(item.get("PlacementGroupArn") or ""),
    )
