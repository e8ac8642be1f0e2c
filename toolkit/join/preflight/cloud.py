"""Our side of a join: the nodes, their images and their network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Network

    from toolkit.config import ClusterConfig

SLURM_UID: Final = 64030
"""Debian's packages give it to user slurm (debian/slurm-wlm-basic-plugins.postinst)."""
FIRST_USER_UID: Final = 1000
"""UID_MIN of Debian's and Ubuntu's /etc/login.defs: below it are the system's own accounts."""
AUTH_TYPES: Final = frozenset({"auth/munge", "auth/slurm"})

PLUGINS: Final = frozenset(
    (
        "auth/munge", "auth/slurm", "cred/munge", "cred/slurm", "hash/k12", "hash/sha3",
        "proctrack/cgroup", "proctrack/linuxproc", "proctrack/pgid", "task/affinity",
        "task/cgroup", "jobacct_gather/cgroup", "jobacct_gather/linux", "job_container/tmpfs",
        "namespace/tmpfs", "namespace/linux", "node_features/helpers", "prep/script", "mpi/pmi2",
        "mpi/pmix", "mpi/pmix_v3", "mpi/pmix_v4", "mpi/pmix_v5", "switch/nvidia_imex",
        "topology/default", "topology/flat", "topology/tree", "topology/block",
        "acct_gather_energy/gpu", "acct_gather_energy/rapl", "acct_gather_filesystem/lustre",
        "acct_gather_interconnect/sysfs",
    )
)  # fmt: skip
"""slurmd's plugins in the packages of Debian and of SchedMD, as slurm.conf writes them."""
JOBSCRIPT_PATHS: Final = ("/shared/jobscripts", "/shared/lib", "/shared/env")
"""What an image with the job scripts has."""
AUTODETECT: Final = frozenset({"off", "nvidia"})
"""AutoDetect in gres.conf that needs no vendor's library: Debian's package is built without any."""


@dataclass(frozen=True, slots=True)
class CloudSide:
    """Nodes that come to a site."""

    slurm_version: str  # of the node image
    nodes: tuple[str, ...]
    hostlist: str  # the same nodes, as slurm.conf has them
    partitions: tuple[str, ...]
    subnets: tuple[IPv4Network, ...]
    gpu_nodes: str = ""  # a hostlist; "" without GPUs
    gpu_kinds: tuple[str, ...] = ()
    users: Mapping[str, int] | None = None  # None: nodes ask the site's own directory, such as LDAP
    slurm_uid: int | None = SLURM_UID  # None: nodes take the site's
    first_user_uid: int = FIRST_USER_UID
    auth_types: frozenset[str] = AUTH_TYPES
    plugins: frozenset[str] = PLUGINS
    shared_paths: tuple[str, ...] = ()  # nodes have what is below them
    own_settings: frozenset[str] = frozenset()  # that our own file adds, in lower case

    def has_path(self, path: str) -> bool:
        """Return whether nodes have a path of the site's."""
        return any(path == top or path.startswith(f"{top}/") for top in self.shared_paths)


def cloud_side(config: ClusterConfig) -> CloudSide:
    """Return the nodes of a cluster.yaml of `kind: join`."""
    hostlists = [config.nodes(pool) for pool in config.pools]
    with_gpus = [name for name, pool in config.pools.items() if pool.shape.gpus]
    kinds = {pool.shape.gpu for pool in config.pools.values() if pool.shape.gpu}
    users = config.joined_site.users
    return CloudSide(
        slurm_version=config.slurm.version,
        nodes=tuple(name for hostlist in hostlists for name in expand(hostlist)),
        hostlist=",".join(hostlists),
        partitions=tuple(config.partitions),
        subnets=tuple(config.network.zones.values()),
        gpu_nodes=",".join(config.nodes(pool) for pool in with_gpus),
        gpu_kinds=tuple(sorted(kinds)),
        users={user.name: user.uid for user in users} if users else None,
        slurm_uid=None,
        shared_paths=JOBSCRIPT_PATHS if config.joined_site.jobscripts else (),
        own_settings=frozenset({"grestypes"}),
    )
