"""EC2's rate of instance starts, and the largest job of each pool. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from slurmplugins.power_save.resume import launch_rate
from toolkit.deploy.preflight.findings import Finding, Severity
from toolkit.deploy.preflight.uses import offering_of, reachable, uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.state.launch_budget_record import Rate
    from toolkit.config import ClusterConfig

_STATED: Final = "aws.instance_rate"
_PUBLISHED: Final = "EC2's published rate"


def rate_checks(config: ClusterConfig) -> Iterator[Finding]:
    """Warn of pools with more nodes than one job gets in time.

    Without `aws.instance_rate` such a job is tried once, since the account may have more.
    """
    stated = config.aws.instance_rate
    rate = launch_rate(
        None if stated is None else (stated.burst, stated.per_second), config.slurm.resume_timeout
    )
    for name, pool in config.pools.items():
        if pool.count > rate.max_instances and _uses_run_instances(config, name):
            yield Finding(
                "rate-below-pool", Severity.WARNING, ("pools", name, "count"), _text(rate)
            )


def _uses_run_instances(config: ClusterConfig, pool: str) -> bool:
    """Return whether each launch of a pool has one offering.

    A fleet does not draw on the rate. Offerings of one lifecycle and zone are a fleet; a
    reservation is always alone.
    """
    lifecycles = frozenset().union(*reachable(config, pool))
    group_sizes: Counter[tuple[str, str]] = Counter()
    for use in uses(config):
        if use.pool != pool or use.lifecycle not in lifecycles:
            continue
        if not offering_of(config, use)[1].reservation:
            group_sizes.update((use.lifecycle, zone) for zone in use.zones)
    return all(size == 1 for size in group_sizes.values())


def _text(rate: Rate) -> str:
    name = _STATED if rate.is_configured else _PUBLISHED
    outcome = (
        "is held at once"
        if rate.is_configured
        else "is tried once, and held if the account has no more"
    )
    return (
        f"a job of more than {rate.max_instances:.0f} nodes {outcome}: {name}"
        f" ({rate.burst:g} at once, {rate.per_second:g} a second) starts no more within"
        f" {rate.seconds:.0f} s, half of slurm.resume_timeout"
    )
