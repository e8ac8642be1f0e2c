"""Checks instance types against the region: zones, processors, GPUs, EFA. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from toolkit.config.instance_types import FIRST_CARD_WITHOUT_EFA
from toolkit.deploy.network_cards import network_interfaces
from toolkit.deploy.preflight.findings import Finding, Severity
from toolkit.deploy.preflight.uses import Use, offering_of, uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.config import ClusterConfig
    from toolkit.config.model import PoolSection
    from toolkit.config.raw import KeyPath
    from toolkit.deploy.preflight.facts import AccountFacts, InstanceType

ARCHITECTURE: Final = "x86_64"
MIB_PER_GIB: Final = 1024


def zone_checks(config: ClusterConfig, facts: AccountFacts) -> Iterator[Finding]:
    """Yield zones that this account doesn't have."""
    if facts.zones is None:
        return
    for zone in config.network.zones:
        if zone not in facts.zones:
            zones = ", ".join(sorted(facts.zones)) or "none"
            message = f"the account has no zone {zone}; it has: {zones}"
            yield Finding("no-such-zone", Severity.ERROR, ("network", "zones", zone), message)


def type_checks(config: ClusterConfig, facts: AccountFacts) -> Iterator[Finding]:
    """Yield types that the region lacks, or that don't fit their place."""
    for use in uses(config):
        instance_type = None if facts.types is None else facts.types.get(use.instance_type)
        if facts.types is not None and instance_type is None:
            message = f"{config.aws.region} has no instance type {use.instance_type}"
            yield Finding("no-such-type", Severity.ERROR, use.key_path, message)
            continue
        yield from _zones(use, facts)
        if instance_type is not None:
            yield from _machine(use, instance_type)
            if use.pool:
                pool, _ = offering_of(config, use)
                yield from _shape(use.key_path, pool, instance_type)
                yield from _network(use.key_path, pool, instance_type)


def _zones(use: Use, facts: AccountFacts) -> Iterator[Finding]:
    """Yield zones without the type.

    The engine goes on to the next zone, so only a type without any zone is an error.
    """
    if facts.offered is None:
        return
    offered = {zone for name, zone in facts.offered if name == use.instance_type}
    if not use.zones and not offered:
        message = f"no zone of the region offers {use.instance_type}"
        yield Finding("type-not-in-zone", Severity.ERROR, use.key_path, message)
    missing = [zone for zone in use.zones if zone not in offered]
    if missing:
        elsewhere = ", ".join(sorted(offered)) or "no zone"
        message = f"{', '.join(missing)} doesn't offer {use.instance_type}; {elsewhere} does"
        severity = Severity.ERROR if len(missing) == len(use.zones) else Severity.WARNING
        yield Finding("type-not-in-zone", severity, use.key_path, message)


def _machine(use: Use, instance_type: InstanceType) -> Iterator[Finding]:
    name = instance_type.name
    if ARCHITECTURE not in instance_type.architectures:
        kinds = ", ".join(sorted(instance_type.architectures))
        message = f"{name} has {kinds} processors, and images are built for {ARCHITECTURE}"
        yield Finding("type-architecture", Severity.ERROR, use.key_path, message)
    if use.lifecycle not in instance_type.usage_classes:
        message = f"EC2 doesn't sell {name} as {use.lifecycle}"
        yield Finding("type-lifecycle", Severity.ERROR, use.key_path, message)


def _shape(key_path: KeyPath, pool: PoolSection, instance_type: InstanceType) -> Iterator[Finding]:
    """Yield what the instance lacks of the node's shape.

    slurmctld drains a node that registers with less than slurm.conf says.
    """
    name, shape = instance_type.name, pool.shape
    pairs = (
        ("vCPUs", instance_type.vcpus, shape.cpus),
        ("GiB of memory", instance_type.memory_mib / MIB_PER_GIB, shape.memory_gib),
        ("GPUs", instance_type.gpus, shape.gpus),
    )
    for unit, existing, expected in pairs:
        if existing < expected:
            message = f"{name} has {existing:g} {unit}, and the pool's shape says {expected}"
            yield Finding("type-below-shape", Severity.ERROR, key_path, message)
    if instance_type.gpus > shape.gpus:
        message = (
            f"{name} has {instance_type.gpus} GPUs, and the pool's shape says {shape.gpus}:"
            " the others cost and do nothing"
        )
        yield Finding("type-above-shape", Severity.WARNING, key_path, message)
    names = instance_type.gpu_names
    if shape.gpu and names and not any(_same_kind(shape.gpu, gpu) for gpu in names):
        message = (
            f"{name} has GPUs of the kind {', '.join(names)}, and the pool's shape says {shape.gpu}"
        )
        yield Finding("gpu-kind", Severity.WARNING, key_path, message)


def _same_kind(label: str, gpu: str) -> bool:
    """Return whether a label may mean EC2's GPU.

    EC2 writes `RTX PRO Server 6000`, people `rtxpro6000`: the numbers decide.
    """
    numbers = set(re.findall(r"\d+", gpu))
    return gpu[:1].lower() in label and numbers <= set(re.findall(r"\d+", label))


def _network(
    key_path: KeyPath, pool: PoolSection, instance_type: InstanceType
) -> Iterator[Finding]:
    name = instance_type.name
    if pool.placement_group and "cluster" not in instance_type.placement_strategies:
        message = f"{name} can't be in a cluster placement group, which the pool asks for"
        yield Finding("type-placement", Severity.ERROR, key_path, message)
    if not pool.efa:
        return
    if pool.efa > instance_type.efa_interfaces:
        message = (
            f"{name} has {instance_type.efa_interfaces} EFA interfaces, and the pool's efa is"
            f" {pool.efa}"
        )
        yield Finding("type-efa", Severity.ERROR, key_path, message)
        return
    last_card = max(interface.card for interface in network_interfaces(pool))
    if last_card >= instance_type.network_cards:
        message = (
            f"{name} has {instance_type.network_cards} network cards, and the pool's interfaces"
            f" need {last_card + 1}"
        )
        yield Finding("type-efa", Severity.ERROR, key_path, message)
    expected = pool.offerings[0].type not in FIRST_CARD_WITHOUT_EFA
    if instance_type.first_card_has_efa not in {None, expected}:
        which = "no EFA" if expected else "EFA"
        message = (
            f"the first network card of {name} has {which}, and the launch template expects"
            " otherwise: this toolkit is older than the type"
        )
        yield Finding("efa-first-card", Severity.ERROR, key_path, message)
