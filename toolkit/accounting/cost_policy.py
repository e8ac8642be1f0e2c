"""The payers: the job that caused a cost, the cluster, or all jobs by their use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from toolkit.accounting.charges import Component

if TYPE_CHECKING:
    from collections.abc import Mapping


class Payer(StrEnum):
    """The payer of a component."""

    JOB = "job"
    """The job that caused it; the cluster, where none did."""
    CLUSTER = "cluster"
    SHARED = "shared"
    """All jobs of the report, by the cost of their work."""
    HIDDEN = "hidden"
    """Nobody: it is in no sum."""


KEYS: Final[Mapping[str, tuple[Component, ...]]] = {
    "boot": (Component.BOOT, Component.WAIT),
    "idle_gap": (Component.IDLE_GAP,),
    "idle_tail": (Component.IDLE_TAIL, Component.MINIMUM),
    "failed_launch": (Component.FAILED_LAUNCH,),
    "idle": (Component.IDLE,),
    "unallocated": (Component.UNALLOCATED,),
    "storage": (Component.STORAGE,),
    "overhead": (Component.HEAD, Component.OTHER, Component.NETWORK, Component.COMMITMENT),
    "rack_idle": (Component.RACK_IDLE,),
}
"""The components that each key of `cost_policy:` is about. A job always pays for its work."""

_KEY_OF = {component: key for key, components in KEYS.items() for component in components}


@dataclass(frozen=True, slots=True)
class CostPolicy:
    """The payer of each key of `cost_policy:` in cluster.yaml."""

    boot: Payer = Payer.JOB
    idle_gap: Payer = Payer.JOB
    idle_tail: Payer = Payer.JOB
    failed_launch: Payer = Payer.JOB
    idle: Payer = Payer.CLUSTER
    unallocated: Payer = Payer.CLUSTER
    storage: Payer = Payer.CLUSTER
    overhead: Payer = Payer.CLUSTER
    rack_idle: Payer = Payer.HIDDEN

    def payer(self, component: Component) -> Payer:
        """Return who pays for a component."""
        key = _KEY_OF.get(component)
        return Payer.JOB if key is None else Payer(getattr(self, key))

    def payers(self) -> dict[str, str]:
        """Return the payer of each key, as cluster.yaml writes them."""
        return {key: getattr(self, key).value for key in KEYS}


@lru_cache(maxsize=16)  # asked for each instance of a report
def not_paid_by_jobs(policy: CostPolicy) -> frozenset[Component]:
    """Return the components that no job pays alone."""
    return frozenset(item for item in Component if policy.payer(item) is not Payer.JOB)


@lru_cache(maxsize=16)
def hidden_components(policy: CostPolicy) -> frozenset[Component]:
    """Return the components that are in no sum."""
    return frozenset(item for item in Component if policy.payer(item) is Payer.HIDDEN)
