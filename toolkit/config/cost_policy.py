"""The section of cluster.yaml on the payers of what no job works with."""

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
    idle_tail: JobPayer = "job"
    failed_launch: JobPayer = "job"
    idle: ClusterPayer = "cluster"
    """Instances that no job had or waited for, and idle time of static nodes."""
    unallocated: ClusterPayer = "cluster"
    """The part of a busy instance that no job used."""
    storage: ClusterPayer = "cluster"
    overhead: ClusterPayer = "cluster"
    """The head node, other machines, network, and commitments without an instance."""
    rack_idle: Literal["hidden", "cluster", "shared"] = "hidden"
    """Capacity of racks that no job held. A rate with a target utilisation has it already."""
