"""The vCPU quotas of EC2, and what a cluster may ask of them. Pure.

The families, and the codes that the console links to:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html#ec2-on-demand-instances-limits
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html
A capacity block counts against none of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.config.instance_types import family
from toolkit.deploy.preflight.findings import Finding, Severity
from toolkit.deploy.preflight.uses import Use, reachable, uses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.preflight.facts import AccountFacts, InstanceType

SERVICE: Final = "ec2"


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """A quota of vCPUs, for the families with these prefixes.

    AWS has changed some codes, so the first that an account knows holds.
    """

    name: str
    lifecycle: str
    codes: tuple[str, ...]


def _both(name: str, on_demand: str, *spot: str) -> tuple[VcpuQuota, VcpuQuota | None]:
    return (
        VcpuQuota(f"on-demand {name}", "on-demand", (on_demand,)),
        VcpuQuota(f"spot {name}", "spot", spot) if spot else None,
    )


_STANDARD = _both("Standard (A, C, D, H, I, M, R, T, Z)", "L-1216C47A", "L-34B43A08")
_G = _both("G and VT", "L-DB2E81BA", "L-3819A6DF")
_P = _both("P", "L-417A185B", "L-7212CCBC")
# "All P5 Spot Instance Requests" is a quota of its own in accounts that still have it.
_P5 = (_P[0], VcpuQuota("spot P5", "spot", ("L-C4BD4855", "L-7212CCBC")))
_BY_PREFIX: Final[Mapping[str, tuple[VcpuQuota, VcpuQuota | None]]] = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), _STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), _G),
    "p": _P,
    "f": _both("F", "L-74FC7D96", "L-88CF9481"),
    "x": _both("X", "L-7295265B", "L-E3A00192"),
    "inf": _both("Inf", "L-1945791B", "L-B5D1601B"),
    "trn": _both("Trn", "L-2C3B7624", "L-6B0D517C"),
    "dl": _both("DL", "L-6E869C2A", "L-85EED4F7"),
    "hpc": _both("HPC", "L-F7808C92"),
    "u": _both("High Memory", "L-43DA4232"),
}


def quota_of(instance_type: str, lifecycle: str) -> VcpuQuota | None:
    """Return the quota that a launch counts against; None for one without."""
    prefix = re.match(r"[a-z]*", instance_type)
    pair = _BY_PREFIX.get(prefix[0] if prefix else "")
    if pair is None or lifecycle == "capacity-block":
        return None
    if family(instance_type).startswith("p5"):
        pair = _P5
    return pair[1] if lifecycle == "spot" else pair[0]


def quotas_of(config: ClusterConfig) -> tuple[VcpuQuota, ...]:
    """Return the quotas that this cluster's launches count against."""
    found = (quota_of(use.instance_type, use.lifecycle) for use in uses(config))
    return tuple(dict.fromkeys(quota for quota in found if quota is not None))


def quota_checks(config: ClusterConfig, facts: AccountFacts) -> Iterator[Finding]:
    """Yield quotas below one instance, or below all nodes at once."""
    if facts.types is None:
        return
    for quota in quotas_of(config):
        limit = facts.quotas.get(quota.name)
        if limit is not None:
            yield from _largest_demand(config, facts.types, quota, limit)
    for use in uses(config):
        if use.pool:
            continue
        single_quota = quota_of(use.instance_type, use.lifecycle)
        if single_quota is not None and _too_large(use, facts):
            yield Finding(
                "quota-below-one-instance",
                Severity.ERROR,
                use.key_path,
                f"one {use.instance_type} {_exceeds(use, facts, single_quota)}",
            )
    for pool in config.pools:
        yield from _pool_without_instance(config, facts, pool)


def _largest_demand(
    config: ClusterConfig, types: Mapping[str, InstanceType], quota: VcpuQuota, limit: float
) -> Iterator[Finding]:
    """Warn if all nodes at once need more than the quota.

    Each node counts with the largest type that it may get here.
    """
    by_pool: dict[str, int] = {}
    for use in uses(config):
        instance_type = types.get(use.instance_type)
        if instance_type is None or quota_of(use.instance_type, use.lifecycle) != quota:
            continue
        if use.pool and not any(use.lifecycle in one for one in reachable(config, use.pool)):
            continue
        name = use.pool or str(use.key_path[0])
        by_pool[name] = max(by_pool.get(name, 0), instance_type.vcpus * use.count)
    total = sum(by_pool.values())
    pools = [name for name in by_pool if name in config.pools]
    if total > limit and pools:
        largest = max(pools, key=by_pool.__getitem__)
        parts = ", ".join(f"{name} {vcpus}" for name, vcpus in by_pool.items())
        yield Finding(
            "quota-below-pools",
            Severity.WARNING,
            ("pools", largest, "count"),
            f"up to {total} vCPUs of {quota.name} ({parts}), and the account's quota"
            f" {quota.codes[0]} is {limit:.0f}: jobs wait for the rest",
        )


def _pool_without_instance(
    config: ClusterConfig, facts: AccountFacts, pool: str
) -> Iterator[Finding]:
    """Yield offerings of which the quota allows no instance.

    They are errors if a partition of the pool has no other offering.
    """
    pool_uses = [use for use in uses(config) if use.pool == pool]
    refused = [use for use in pool_uses if _too_large(use, facts)]
    stuck = any(_all_refused(pool_uses, refused, one) for one in reachable(config, pool))
    for use in refused:
        quota = quota_of(use.instance_type, use.lifecycle)
        if quota is not None:
            text = f"one {use.instance_type} {_exceeds(use, facts, quota)}"
            rest = "" if stuck else "; the pool's other offerings are used"
            severity = Severity.ERROR if stuck else Severity.WARNING
            yield Finding("quota-below-one-instance", severity, use.key_path, text + rest)


def _all_refused(pool_uses: Sequence[Use], refused: Sequence[Use], allowed: frozenset[str]) -> bool:
    usable = [use for use in pool_uses if use.lifecycle in allowed]
    return bool(usable) and all(use in refused for use in usable)


def _too_large(use: Use, facts: AccountFacts) -> bool:
    quota = quota_of(use.instance_type, use.lifecycle)
    instance_type = (facts.types or {}).get(use.instance_type)
    if quota is None or instance_type is None or quota.name not in facts.quotas:
        return False
    return instance_type.vcpus > facts.quotas[quota.name]


def _exceeds(use: Use, facts: AccountFacts, quota: VcpuQuota) -> str:
    vcpus = (facts.types or {})[use.instance_type].vcpus
    return (
        f"has {vcpus} vCPUs, and the account's quota of {quota.name} ({quota.codes[0]}) is"
        f" {facts.quotas[quota.name]:.0f}: ask for more in Service Quotas"
    )
