"""Assemble the real engine. No other module knows which implementation is behind a port."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from slurmplugins.config import burst, paths
from slurmplugins.errors import ConfigError
from slurmplugins.execution.engine import Engine
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.workers import WorkerPool

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.cloud.rate_limit import RateLimitedCloud
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


WORKERS: Final = 8
"""Calls under way at once. EC2's rates let fewer through in the seconds that a call takes."""


def assemble(logger: Log) -> Engine:
    """Return the real engine of this head node.

    Raises ConfigError when burst.json can't be used.
    """
    settings = burst.load(paths.BURST)
    check_cluster(settings.slurm_cluster or settings.cluster, paths.SLURM_CONF)
    # Imported only now: a refusal above then costs no imports.
    from slurmplugins.cloud.client import client
    from slurmplugins.cloud.ec2 import Ec2
    from slurmplugins.cloud.stores import S3Store
    from slurmplugins.slurm.scontrol import ScontrolSlurm
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.unavailable_offerings import UnavailableOfferings
    from slurmplugins.system.command import SystemRunner

    clock = SystemClock()
    region, endpoint = settings.region, settings.endpoint_url
    return Engine(
        config=settings,
        cloud=at_ec2s_pace(
            Ec2(settings.cluster, lambda: client("ec2", region, endpoint), clock), settings, clock
        ),
        store=S3Store(settings.bucket, lambda: client("s3", region, endpoint)),
        slurm=ScontrolSlurm(SystemRunner(), settings.slurm_bin, log=logger),
        journal=Journal(paths.STATE, clock),
        unavailable_offerings=UnavailableOfferings(paths.STATE / "offerings.json", clock),
        clock=clock,
        log=logger,
        state=paths.STATE,
        stop_requests=paths.stop_requests(paths.SHARED),
        login_reports=paths.login_reports(paths.SHARED),
        workers=WorkerPool(WORKERS),
    )


def at_ec2s_pace(cloud: Cloud, settings: BurstConfig, clock: Clock) -> RateLimitedCloud:
    """Delay the calls of a process that begins now."""
    from slurmplugins.cloud.rate_limit import Rate, RateLimitedCloud

    return RateLimitedCloud(
        cloud,
        clock,
        patience=settings.resume_timeout / 4,
        launch_until=clock.monotonic() + settings.resume_timeout * burst.CAPACITY_SHARE,
        instances=Rate(*settings.instance_rate) if settings.instance_rate else None,
    )


def check_cluster(cluster: str, slurm_conf: Path) -> None:
    """Raise ConfigError if slurm.conf is of another cluster than burst.json.

    The other cluster's nodes may have the same names. Their instances would be launched and
    terminated for the wrong cluster.
    """
    try:
        text = slurm_conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # slurmctld may keep it elsewhere
    cluster_name = re.search(r"^\s*ClusterName\s*=\s*([^\s#]+)", text, re.IGNORECASE | re.MULTILINE)
    if cluster_name and cluster_name[1].lower() != cluster.lower():
        raise ConfigError(
            (f"burst.json is for cluster {cluster}, but slurm.conf is for {cluster_name[1][:80]}",)
        )
