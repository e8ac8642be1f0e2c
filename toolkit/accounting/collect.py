"""Reads a report's input: records, EC2, the head's sacct, the nodes' shapes, the prices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins.head.sacct_windows import MARGIN
from slurmplugins.model import records
from toolkit import slurm_nodes
from toolkit.accounting import (
    instance_sources,
    notes,
    recorded_instances,
    recorded_prices,
    sacct,
    slurm_instances,
)
from toolkit.accounting.allocation import Policy
from toolkit.accounting.build import build
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.money import SECONDS_PER_HOUR
from toolkit.accounting.records import Buckets, attempts_of, list_pages, read_pages
from toolkit.deploy import record_age
from toolkit.deploy.storage import Bucket
from toolkit.errors import HeadCommandFailed, HeadNotReady, StackMissing
from toolkit.prices import Catalogue, Contracts, PriceBook, Shape
from toolkit.prices.catalogue import with_shapes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.racks import RackNode
    from toolkit.accounting.report import Report
    from toolkit.accounting.set_aside import SetAside
    from toolkit.accounting.slurm_instances import SlurmInstances
    from toolkit.accounting.storage import Infrastructure
    from toolkit.head_runner import Runner
    from toolkit.slurm_nodes import NodeInfo


LONGEST_LOOK_BACK = 31 * 86_400
"""Seconds before a report in which the job that last had an instance is looked for."""
NO_ANSWER = (HeadCommandFailed, HeadNotReady, StackMissing)


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
    records_bucket: str = ""  # with the records that outlive the cluster
    trail: Trail | None = None  # CloudTrail's events, if a person gave them
    contracts: Contracts = field(default_factory=Contracts)
    racks: Mapping[str, RackNode] = field(default_factory=dict)  # by node
    cost_policy: CostPolicy = field(default_factory=CostPolicy)
    imported: tuple[Catalogue, ...] = ()  # of any region and day
    infrastructure: Infrastructure | None = None


def collect(sources: Sources, window: Window, now: int, token: str, policy: Policy) -> Report:
    """Make the report of a window. `token` must be unguessable (see `sacct`).

    The head is asked for what is newer than the records. If it does not answer, a note says up to
    which time the records reach. Raises the head's error where there are no records.
    """
    buckets = Buckets(sources.s3, sources.bucket, sources.records_bucket)
    asked_since, asked = window.since, (window.since, window.until)
    content = recorded_instances.read(
        buckets, sources.ec2, sources.cluster, asked, now, trail=sources.trail
    )
    slurm = _slurm_instances(sources, content.instances, window)
    joined = instance_sources.joined(
        content.instances, slurm.instances, window=window, trail=sources.trail
    )
    instances = with_static_nodes(joined.instances, sources.static_nodes)
    charged = [instance for instance in instances if _overlaps(instance, window)]
    since = min((instance.launched for instance in charged), default=window.since)
    jobs = _attempts(sources, _look_back(charged, window), window.until, token)
    # Before its first instance the cluster cost nothing, so the window begins with that.
    # A rack, and what was paid in advance, cost something before.
    if sources.racks or sources.contracts.has_commitments:
        since = min(since, window.since)
    window = replace(window, since=min(max(window.since, since), window.until - 1))
    catalogue = with_shapes_of(Catalogue.bundled(), sources.imported)
    spot = {instance.instance_type for instance in charged if instance.spot}
    # The first second's price is that of the beginning of the instance's hour.
    priced = (window.since - SECONDS_PER_HOUR, window.until)
    history, damaged_prices = recorded_prices.read(
        buckets, sources.ec2, sources.region, spot, priced
    )
    nodes = _nodes(sources, charged, catalogue)
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
            *damaged_prices,
            *(sources.trail.set_aside if sources.trail else ()),
        ),
        disagreements=(*content.disagreements, *joined.disagreements, *jobs.notes),
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


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The attempts of a report, and what is doubtful about all of them."""

    attempts: tuple[Attempt, ...]
    set_aside: tuple[SetAside, ...]
    notes: tuple[str, ...] = ()


def _slurm_instances(
    sources: Sources, instances: Iterable[Instance], window: Window
) -> SlurmInstances:
    """Return the instances that Slurm knows, none without a head."""
    first = min((item.launched for item in instances), default=window.since)
    try:
        return slurm_instances.read(sources.runner, sources.cluster, max(first, window.since))
    except (HeadNotReady, StackMissing):  # a note tells up to which time the records reach
        return slurm_instances.SlurmInstances()


def _attempts(sources: Sources, since: int, until: int, token: str) -> _Jobs:
    """Return the attempts of the records, and newer ones from the head."""
    listing = list_pages(sources.s3, sources.records_bucket, records.SACCT, since, until)
    pages, set_aside = read_pages(sources.s3, sources.records_bucket, listing.keys)
    newer, sentences = [], []
    reach = listing.reach
    if reach is not None:
        # slurmctld may have kept rows from slurmdbd while the last pages were written.
        own = Bucket(sources.s3, sources.bucket)
        reach = min(reach, record_age.parse(own.read_json(records.STATUS)).settled or reach)
    if reach is None or reach < until:
        start = since if reach is None else max(since, reach - MARGIN)
        try:
            newer.append(sacct.read(sources.runner, start, until, token, cluster=sources.cluster))
        except NO_ANSWER as error:
            if reach is None:
                raise
            sentences.append(notes.records_end(reach, error.message))
    content = attempts_of(pages, *newer, cluster=sources.cluster)
    return _Jobs(content.attempts, (*set_aside, *content.set_aside), tuple(sentences))


def _look_back(charged: Iterable[Instance], window: Window) -> int:
    """Return the first second whose attempts the charged instances need.

    No job is on the head. A static node's idle time is nobody's, whatever ran there before.
    """
    launches = [item.launched for item in charged if not (item.is_head or item.static)]
    first = min([*launches, window.since])
    return max(first, window.since - LONGEST_LOOK_BACK)


def _nodes(
    sources: Sources, charged: Iterable[Instance], catalogue: Catalogue
) -> Iterable[NodeInfo]:
    """Return Slurm's nodes, if a type or a rack lacks a shape."""
    racks_have_shapes = all(rack.shape for rack in sources.racks.values())
    if racks_have_shapes and all(
        item.is_head or item.instance_type in catalogue.shapes for item in charged
    ):
        return ()
    try:
        return slurm_nodes.read_nodes(sources.runner)
    except NO_ANSWER:
        return ()  # the note on such an instance says that its size is unknown


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
