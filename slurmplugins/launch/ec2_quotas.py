"""Find the EC2 quota that an instance counts against, and the nodes that fill each quota. Pure.

Other instances of ours may fill a quota: it comes free as they end. A person is needed only for a
quota that one job exceeds alone.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import ROLE_COMPUTE, EndCause, InstanceState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from slurmplugins.errors import CloudError
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.offering import Offering

_FAMILY: Final = re.compile(r"[a-z]+")

_STANDARD: Final = frozenset(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"))

_FAMILY_QUOTA_CODES: Final = frozenset(
    ("InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded")
)
"""Codes that refuse the instances of some families, of one lifecycle."""


def quota_name(instance_type: str, lifecycle: str) -> str:
    """Name the quota of this instance type and lifecycle.

    EC2 has one quota for some families together, and separate ones for spot and on demand.
    """
    match = _FAMILY.match(instance_type)
    family = match[0] if match else instance_type
    if family in _STANDARD:
        family = "standard"
    return f"{lifecycle}:{'g' if family == 'vt' else family}"


def nodes_by_quota(
    instances: Iterable[Instance],
    termination_causes: Mapping[str, EndCause],
    static_nodes: Collection[str],
) -> dict[str, frozenset[NodeName]]:
    """Map each quota to the nodes whose instances fill it for now.

    These instances will end one day, or are about to. Static nodes keep theirs and are left out.
    Instances that a launch of ours could not keep are left out too. Otherwise a job that exceeds a
    quota alone would find the instances of its last try.
    """
    by_quota: dict[str, set[NodeName]] = {}
    for instance in instances:
        if instance.role != ROLE_COMPUTE or instance.node is None or instance.node in static_nodes:
            continue
        terminated = instance.state is InstanceState.TERMINATED
        if not terminated and termination_causes.get(instance.id) is not EndCause.RESUME_FAILED:
            by_quota.setdefault(quota_name(instance.type, instance.lifecycle), set()).add(
                instance.node
            )
    return {name: frozenset(nodes) for name, nodes in by_quota.items()}


class QuotaUsage:
    """The nodes that fill each quota during one run: those listed before, and those of its own
    launches.

    Safe between threads.
    """

    def __init__(self, initial_nodes: Mapping[str, Collection[NodeName]]) -> None:
        self._nodes = {name: set(nodes) for name, nodes in initial_nodes.items()}
        self._lock = threading.Lock()

    def add(self, instances: Iterable[Instance]) -> None:
        """Count instances that the run launched.

        Instances that the run ends later count too.
        """
        with self._lock:
            for instance in instances:
                if instance.node is not None:
                    self._nodes.setdefault(
                        quota_name(instance.type, instance.lifecycle), set()
                    ).add(instance.node)

    def filled_by_others(
        self, offering: Offering, error: CloudError, own_nodes: Collection[NodeName]
    ) -> bool:
        """Return whether other nodes' instances count against the quota.

        `own` are the request's own nodes.
        """
        name = quota_name(offering.type, offering.lifecycle)
        with self._lock:
            if error.code in _FAMILY_QUOTA_CODES:
                return not self._nodes.get(name, set()).issubset(own_nodes)
            return any(not nodes.issubset(own_nodes) for nodes in self._nodes.values())
