"""Reads a report's input: the ledger, EC2, sacct, the nodes' shapes, the prices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toolkit import slurm_nodes
from toolkit.accounting import instance_sources, ledger, sacct, slurm_instances
from toolkit.accounting.allocation import Policy
from toolkit.accounting.build import build
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.prices import Catalogue, Contracts, PriceBook, Shape, read_history
from toolkit.prices.catalogue import with_shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.racks import RackNode
    from toolkit.accounting.report import Report
    from toolkit.accounting.storage import Infrastructure
    from toolkit.head_runner import Runner
    from toolkit.slurm_nodes import NodeInfo


@dataclass(frozen=True, slots=True)
class Sources:
    """The clients and names by which one cluster's facts are read."""

    cluster: str
    region: str
    bucket: str
    ec2: EC2Client
    s3: S3Client
    runner: Runner
    static_nodes: frozenset[str] = frozenset()  # nodes that always have an instance
    trail: Trail | None = None  # CloudTrail's events, if a person gave them
    contracts: Contracts = field(default_factory=Contracts)
    racks: Mapping[str, RackNode] = field(default_factory=dict)  # by node
    cost_policy: CostPolicy = field(default_factory=CostPolicy)
    imported: tuple[Catalogue, ...] = ()  # of any region and day
    infrastructure: Infrastructure | None = None


def collect(sources: Sources, window: Window, now: int, token: str, policy: Policy) -> Report:
    """Make the report of a window. `token` must be unguessable (see `sacct`)."""
    content = ledger.read(
        sources.s3, sources.bucket, sources.ec2, sources.cluster, trail=sources.trail
    )
    since = min((item.launched for item in content.instances), default=window.since)
    slurm = slurm_instances.read(sources.runner, sources.cluster, max(since, window.since))
    joined = instance_sources.joined(
        content.instances, slurm.instances, window=window, trail=sources.trail
    )
    instances = with_static_nodes(joined.instances, sources.static_nodes)
    charged = [instance for instance in instances if _overlaps(instance, window)]
    since = min((instance.launched for instance in charged), default=window.since)
    # Before its first instance the cluster cost nothing, so the window begins with that.
    asked_since = window.since
    # A rack, and what was paid in advance, cost something before.
    if sources.racks or sources.contracts.has_commitments:
        since = min(since, window.since)
    window = replace(window, since=min(max(window.since, since), window.until - 1))
    jobs = sacct.read(sources.runner, since, window.until, token, cluster=sources.cluster)
    catalogue = with_shapes_of(Catalogue.bundled(), sources.imported)
    spot = {instance.instance_type for instance in charged if instance.spot}
    history = read_history(sources.ec2, spot, since, window.until)
    nodes = slurm_nodes.read_nodes(sources.runner)
    report = build(
        cluster=sources.cluster,
        attempts=jobs.attempts,
        instances=instances,
        shapes=shapes(instances, nodes, catalogue),
        book=PriceBook(sources.region, catalogue, history, sources.contracts, sources.imported),
        window=window,
        now=now,
        policy=policy,
        set_aside=(
            *content.set_aside,
            *slurm.set_aside,
            *jobs.set_aside,
            *(sources.trail.set_aside if sources.trail else ()),
        ),
        disagreements=(*content.disagreements, *joined.disagreements),
        cost_policy=sources.cost_policy,
        racks=with_shapes(sources.racks, nodes),
        infrastructure=sources.infrastructure,
    )
    return replace(report, asked_since=asked_since)


def with_shapes(racks: Mapping[str, RackNode], nodes: Iterable[NodeInfo]) -> dict[str, RackNode]:
    """Return the racks' nodes, each with a shape.

    A node without one in cluster.yaml has Slurm's figures of today.
    """
    node_by_name = {node.name: node for node in nodes}
    return {
        name: replace(rack, shape=rack.shape or _shape(node_by_name.get(name)))
        for name, rack in racks.items()
    }


def _shape(node: NodeInfo | None) -> Shape | None:
    return None if node is None else Shape(node.cpus, node.memory_mib, node.gpus)


def shapes(
    instances: Iterable[Instance], nodes: Iterable[NodeInfo], catalogue: Catalogue
) -> Mapping[str, Shape]:
    """Return each instance's shape, by instance id.

    It is the size of its type, which never changes, unlike its node's shape. Slurm's
    figures serve for a type that the catalogue lacks. They must be of a node that has an
    instance of that type today.
    """
    node_by_name = {node.name: node for node in nodes}
    shapes_by_id = {}
    for instance in instances:
        shape = catalogue.shapes.get(instance.instance_type)
        node = node_by_name.get(instance.node)
        if shape is None and node is not None and node.instance_type == instance.instance_type:
            shape = Shape(node.cpus, node.memory_mib, node.gpus)
        if shape is not None:
            shapes_by_id[instance.instance_id] = shape
    return shapes_by_id


def with_static_nodes(
    instances: Iterable[Instance], static_nodes: frozenset[str]
) -> list[Instance]:
    """Return the instances, those of static nodes marked."""
    return [replace(item, static=item.node in static_nodes) for item in instances]


def _overlaps(instance: Instance, window: Window) -> bool:
    # A short-lived instance is billed beyond its end; `allocate` knows by how much.
    return instance.launched < window.until and (
        instance.ended is None or instance.ended + Policy().minimum_seconds > window.since
    )
