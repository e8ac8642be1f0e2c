"""The nodes that a job takes in a pool, and the part of each that it pays for. Pure.

As Slurm does: a job that states no memory gets the partition's default for each CPU or GPU. As the
report does: it pays for the largest of its parts of CPUs, memory and GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from slurmplugins.model.queued_job import NodeGroup, Request

if TYPE_CHECKING:
    from toolkit.quote.request import Gpus, JobRequest
    from toolkit.render.context import NodeLine, PartitionLine

WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Fit:
    """The nodes of a pool for one task of a job."""

    nodes: int
    share: Fraction
    """Of each node, at most 1."""
    gpus: int
    """Over all nodes."""

    @property
    def whole_nodes(self) -> Fraction:
        """Return the nodes that its parts add up to."""
        return self.nodes * self.share


@dataclass(frozen=True, slots=True)
class _Demand:
    """Resources of one task of a job, over all nodes."""

    cpus: int
    memory_mib: int
    gpus: int


def fit(request: JobRequest, node: NodeLine, count: int, partition: PartitionLine) -> Fit | None:
    """Return the job's nodes in a pool; None if none fit."""
    gpus = _gpus(request)
    if gpus.count and (not node.gpus or (gpus.kind and gpus.kind != node.gpu)):
        return None
    cpus = _cpus(request, gpus.count, partition)
    demand = _Demand(cpus, _memory(request, node, cpus, gpus.count, partition), gpus.count)
    group = NodeGroup(
        count=count,
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        gpus={node.gpu: node.gpus} if node.gpus else {},
        features=frozenset(node.features),
    )
    nodes = group.nodes_for(
        Request(
            cpus=demand.cpus,
            memory_mib=demand.memory_mib,
            nodes=request.nodes,
            most_nodes=request.most_nodes,
            gpus=gpus.count,
            gpu=gpus.kind,
            cpus_of_node=max(request.cpus_per_task, 1),
            features=request.features,
        )
    )
    if nodes is None:
        return None
    share = WHOLE if request.exclusive else _share(demand, node, nodes)
    return Fit(nodes, share, gpus.count)


def _gpus(request: JobRequest) -> Gpus:
    if request.gpus.count:
        return request.gpus
    if request.gpus_per_task.count:
        return replace(request.gpus_per_task, count=request.gpus_per_task.count * _ntasks(request))
    return replace(request.gpus_per_node, count=request.gpus_per_node.count * request.nodes)


def _ntasks(request: JobRequest) -> int:
    return request.ntasks or max(request.ntasks_per_node, 1) * request.nodes


def _cpus(request: JobRequest, gpus: int, partition: PartitionLine) -> int:
    of_gpus = gpus * (request.cpus_per_gpu or partition.cpus_per_gpu)
    of_tasks = _ntasks(request) * max(request.cpus_per_task, 1)
    # slurm.conf(5): DefCpuPerGPU counts only without --cpus-per-task and --cpus-per-gpu.
    return of_tasks if request.cpus_per_task else max(of_gpus, of_tasks)


def _memory(
    request: JobRequest, node: NodeLine, cpus: int, gpus: int, partition: PartitionLine
) -> int:
    if request.memory_per_node is not None:
        return (request.memory_per_node or node.memory_mib) * request.nodes
    if request.memory_per_cpu is not None:
        return request.memory_per_cpu * cpus
    if request.memory_per_gpu is not None:
        return request.memory_per_gpu * gpus
    if gpus and partition.memory_per_gpu:
        return partition.memory_per_gpu * gpus
    return partition.memory_per_cpu * cpus


def _share(demand: _Demand, node: NodeLine, nodes: int) -> Fraction:
    """Return the largest part of a node that the job takes."""
    cpus = -(-demand.cpus // nodes)
    if node.sockets:  # whole cores alone
        cpus = -(-cpus // node.threads_per_core) * node.threads_per_core
    parts = [
        Fraction(cpus, node.cpus),
        Fraction(demand.memory_mib, nodes * node.memory_mib),
        Fraction(demand.gpus, nodes * node.gpus) if node.gpus else Fraction(0),
    ]
    return min(max(parts), WHOLE)
