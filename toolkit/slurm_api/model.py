"""What people's commands read from Slurm: frozen values with plain types.

Times are seconds since the epoch, None where Slurm says unset or infinite.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node as slurmctld sees it now."""

    name: str
    states: frozenset[str]
    cpus: int
    memory_mib: int
    gpus: int
    partitions: tuple[str, ...]
    instance_id: str
    instance_type: str
    address: str
    reason: str

    @property
    def base_state(self) -> str:
        """The one word of the state that isn't a flag: idle, allocated, mixed, down, …"""
        known = ("DOWN", "ALLOCATED", "MIXED", "IDLE", "FUTURE", "ERROR")
        return next((state for state in known if state in self.states), "UNKNOWN").lower()


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job that slurmctld still remembers."""

    job_id: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    reason: str
    nodes: str
    node_count: int
    restarts: int
    submitted_at: int | None
    started_at: int | None
    ended_at: int | None
    comment: str
    admin_comment: str


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition, its nodes as a hostlist."""

    name: str
    up: bool
    nodes: str
    node_count: int
    max_minutes: int | None
