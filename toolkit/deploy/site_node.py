"""node.json of a join: the site's controllers and accounts, and no filesystem of ours. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.deploy import names

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig


@dataclass(frozen=True, slots=True)
class SiteNode:
    """The facts of a site that its cloud nodes need."""

    controllers: tuple[tuple[str, str, int], ...]
    """Name, address and port of each slurmctld, primary first."""
    slurm_user: tuple[str, int, int]
    """SlurmUser with its uid and gid."""


def site_node_settings(config: ClusterConfig, bucket: str, site: SiteNode) -> dict[str, Any]:
    """Return node.json."""
    return {
        "cluster": config.cluster,
        "region": config.aws.region,
        "endpoint_url": config.aws.endpoint_url,
        "secret_id": names.secret(config),
        "bucket": bucket,
        "log_group": names.log_group(config) if config.logs.enabled else None,
        "site": {
            "controllers": site.controllers,
            "slurm_user": site.slurm_user,
            "users": [
                (user.name, user.uid, user.uid if user.gid is None else user.gid)
                for user in config.joined_site.users
            ],
        },
    }
