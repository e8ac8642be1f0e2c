"""Facts of an AWS account that a preflight checks, as AWS answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from toolkit.config.raw import KeyPath


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An instance type, from DescribeInstanceTypes."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: int = 0
    gpu_names: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset({"x86_64"})
    usage_classes: frozenset[str] = frozenset({"on-demand", "spot"})
    placement_strategies: frozenset[str] = frozenset({"cluster"})
    efa_interfaces: int = 0
    network_cards: int = 1
    first_card_has_efa: bool | None = None  # None: this SDK can't read it


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation or block, from DescribeCapacityReservations."""

    id: str
    instance_type: str
    zone: str
    state: str
    total: int
    available: int
    is_block: bool = False
    ends_at: datetime | None = None  # None: it stays until it is cancelled
    placement_group: str = ""  # its ARN


@dataclass(frozen=True, slots=True)
class DefaultKey:
    """The KMS key of EBS volumes that name none."""

    id: str
    of_customer: bool


@dataclass(frozen=True, slots=True)
class RefusedLaunch:
    """A launch that EC2 would refuse, from RunInstances with DryRun."""

    key_path: KeyPath
    subject: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that AWS did not answer.

    `right` is the permission that the caller lacks. Without one, `message` says why.
    """

    subject: str
    right: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """The answers to a preflight's questions; None where there was no answer."""

    account: str
    caller: str
    zones: frozenset[str] | None = None
    types: Mapping[str, InstanceType] | None = None
    offered: frozenset[tuple[str, str]] | None = None  # instance type, zone
    quotas: Mapping[str, float] = field(default_factory=dict)  # vCPUs, by name of the quota
    reservations: Mapping[str, Reservation] | None = None
    default_key: DefaultKey | None = None
    base_image_problem: str = ""
    slurm_packages_problem: str = ""
    builder_subnet_problem: str = ""
    refused_launches: tuple[RefusedLaunch, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
