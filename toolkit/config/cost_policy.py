"""The section of cluster.yaml that says who pays for time and things that no job works with."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from typing import Literal

from toolkit.config.section import Section

JobPayer = Literal["job", "cluster", "shared"]
ClusterPayer = Literal["cluster", "shared"]


class CostPolicySection(Section):
    """Payers: the job that caused a cost, the cluster, or all jobs by their use."""

    boot: JobPayer = "job"
    """The boot of instances, and the wait for the slowest node."""
    idle_gap: JobPayer = "job"
    """An instance between two jobs: the one before caused it."""
    idle_tail: JobPayer = "job"
    """An instance from its last job to its end, and the rest of a first minute."""
    failed_launch: JobPayer = "job"
    """An instance that never became a node: the job that waited caused it."""
    idle: ClusterPayer = "cluster"
    """Instances that no job had or waited for, and idle time of static nodes."""
    unallocated: ClusterPayer = "cluster"
    """The part of a busy instance that no job used."""
    storage: ClusterPayer = "cluster"
    overhead: ClusterPayer = "cluster"
    """The head node, other machines, network, and commitments without an instance."""
    rack_idle: Literal["hidden", "cluster", "shared"] = "hidden"
    """Capacity of racks that no job held. A rate with a target utilisation has it already."""
