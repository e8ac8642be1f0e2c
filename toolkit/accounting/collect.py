"""Reads a report's input: records, EC2, the head's sacct, the nodes' shapes, the prices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins.head.sacct_windows import MARGIN
from slurmplugins.model import records as slurm_records
from toolkit import slurm_nodes
from toolkit.accounting import (
    instance_sources,
    notes,
    recorded_instances,
    recorded_prices,
    recorded_slurm_instances,
    sacct,
    slurm_instances,
)
from toolkit.accounting.allocation import Policy
from toolkit.accounting.build import segment
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.metrics import LOOK_BACK, NO_METRICS, Metrics
from toolkit.accounting.money import SECONDS_PER_HOUR
from toolkit.accounting.node_instances import LONGEST_LOOK_BACK
from toolkit.accounting.node_shapes import shapes, with_shapes
from toolkit.accounting.racks import with_site_nodes
from toolkit.accounting.records import Buckets, RecordsInS3, with_newer
from toolkit.accounting.segments import report_of
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
    from toolkit.accounting.records import Records
    from toolkit.accounting.report import Report
    from toolkit.accounting.segments import Segment
    from toolkit.accounting.set_aside import SetAside
    from toolkit.accounting.slurm_instances import SlurmInstances
    from toolkit.accounting.storage import Infrastructure
    from toolkit.head_runner import Runner
    from toolkit.slurm_nodes import NodeInfo


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
    records: Records | None = None  # None: the bucket of records itself
    slurm_cluster: str = ""  # of a join: the site's ClusterName; else it is the cluster's own name
    own_nodes: frozenset[str] | None = None  # of a join: nodes that are no racks of the site

    @property
    def slurm_name(self) -> str:
        """Return the cluster's name in Slurm's accounting."""
        return self.slurm_cluster or self.cluster


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that reports of a time are built of."""

    attempts: tuple[Attempt, ...]
    instances: tuple[Instance, ...]
    shapes: Mapping[str, Shape]  # by instance id
    book: PriceBook
    racks: Mapping[str, RackNode]  # by node
    metrics: Metrics = NO_METRICS
    set_aside: tuple[SetAside, ...] = ()
    disagreements: tuple[str, ...] = ()
    slurm_reach: int | None = None  # up to which Slurm's own list of instances is known; None: all


def collect(sources: Sources, window: Window, now: int, token: str, policy: Policy) -> Report:
    """Make the report of a window. `token` must be unguessable (see `sacct`).

    The head is asked for what is newer than the records. If it does not answer, a note says up to
    which time the records reach. Raises the head's error where there are no records.
    """
    collected = collect_segment(sources, window, now, token, policy)
    report = report_of(sources.cluster, [collected], now, sources.cost_policy)
    return replace(report, asked_since=window.since)


def collect_segment(
    sources: Sources,
    window: Window,
    now: int,
    token: str,
    policy: Policy,
    *,
    matched_until: int | None = None,
) -> Segment:
    """Weigh the costs of a window.

    It may be a part of a longer one, up to `matched_until`. Raises as `collect` does.
    """
    reach = max(window.until, matched_until or 0)
    facts = gather(sources, replace(window, until=reach), now, token)
    first = min((item.launched for item in facts.instances if overlaps(item, window)), default=None)
    own = begun(first, sources, window)
    collected = segment_of(facts, sources, own, now, policy, matched_until=reach)
    if first is None and not costs_always(sources):
        return replace(collected, first_cost=None)
    return collected


def costs_always(sources: Sources) -> bool:
    """Return whether something costs without any instance."""
    has_racks = bool(sources.racks) or sources.own_nodes is not None
    return has_racks or sources.contracts.has_commitments


def begun(first_launch: int | None, sources: Sources, window: Window) -> Window:
    """Return the window from the first second at which something could cost.

    Before its first instance the cluster cost nothing. A rack, and what was paid in advance, cost
    something before.
    """
    since = window.since if first_launch is None else first_launch
    if costs_always(sources):
        since = min(since, window.since)
    return replace(window, since=min(max(window.since, since), window.until - 1))


def segment_of(
    facts: Facts,
    sources: Sources,
    window: Window,
    now: int,
    policy: Policy,
    *,
    matched_until: int | None = None,
) -> Segment:
    """Weigh the costs of a window, of facts that reach over it."""
    return segment(
        attempts=facts.attempts,
        instances=facts.instances,
        shapes=facts.shapes,
        book=facts.book,
        window=window,
        now=now,
        policy=policy,
        set_aside=facts.set_aside,
        disagreements=facts.disagreements,
        cost_policy=sources.cost_policy,
        racks=facts.racks,
        infrastructure=sources.infrastructure,
        metrics=facts.metrics,
        matched_until=matched_until,
        slurm_reach=facts.slurm_reach,
    )


def gather(sources: Sources, window: Window, now: int, token: str) -> Facts:
    """Read the facts of a window. Raises as `collect` does."""
    buckets = Buckets(sources.s3, sources.bucket, sources.records_bucket)
    records = sources.records or RecordsInS3(buckets)
    lives = _lives(sources, records, buckets, window, now)
    charged = [instance for instance in lives.instances if overlaps(instance, window)]
    first_launch = min((instance.launched for instance in charged), default=None)
    jobs = _attempts(sources, records, look_back(charged, window), window.until, token)
    since = begun(first_launch, sources, window).since
    catalogue = with_shapes_of(Catalogue.bundled(), sources.imported)
    spot = {instance.instance_type for instance in charged if instance.spot}
    # The first second's price is that of the beginning of the instance's hour.
    priced = (since - SECONDS_PER_HOUR, window.until)
    history, damaged_prices = recorded_prices.read(
        records, sources.ec2, sources.region, spot, priced
    )
    metrics, damaged_metrics = _metrics(sources, records, since, window.until)
    racks = _racks(sources, jobs.attempts, lives.instances, now)
    nodes = _nodes(sources, racks, charged, catalogue)
    return Facts(
        attempts=jobs.attempts,
        instances=lives.instances,
        shapes=shapes(lives.instances, nodes, catalogue),
        book=PriceBook(sources.region, catalogue, history, sources.contracts, sources.imported),
        racks=with_shapes(racks, nodes),
        metrics=metrics,
        set_aside=(
            *lives.set_aside,
            *jobs.set_aside,
            *damaged_prices,
            *damaged_metrics,
            *(sources.trail.set_aside if sources.trail else ()),
        ),
        disagreements=(
            *lives.disagreements,
            *jobs.notes,
            *notes.unrated_racks(racks.keys() - sources.racks.keys()),
        ),
        slurm_reach=lives.slurm_reach,
    )


@dataclass(frozen=True, slots=True)
class _Lives:
    """The lifetimes of all instances, and what is doubtful about them."""

    instances: tuple[Instance, ...]
    set_aside: tuple[SetAside, ...]
    disagreements: tuple[str, ...]
    slurm_reach: int | None


def _lives(
    sources: Sources, records: Records, buckets: Buckets, window: Window, now: int
) -> _Lives:
    """Return the instances of the records, EC2 and Slurm."""
    content = recorded_instances.read(
        records,
        buckets,
        sources.ec2,
        sources.cluster,
        (window.since, window.until),
        now=now,
        trail=sources.trail,
    )
    slurm = slurm_instances.merged(
        recorded_slurm_instances.read(buckets, sources.slurm_name, window.since, window.until),
        _slurm_instances(sources, content.instances, window),
    )
    joined = instance_sources.joined(
        content.instances, slurm.instances, window=window, trail=sources.trail
    )
    return _Lives(
        tuple(with_static_nodes(joined.instances, sources.static_nodes)),
        (*content.set_aside, *slurm.set_aside),
        (*content.disagreements, *joined.disagreements),
        slurm.reach,
    )


def _racks(
    sources: Sources, attempts: Iterable[Attempt], instances: Iterable[Instance], now: int
) -> Mapping[str, RackNode]:
    """Return the racks; a join has those of its site."""
    if sources.own_nodes is None:
        return sources.racks
    # A node that cluster.yaml has no more may have had an instance.
    own_nodes = sources.own_nodes | {instance.node for instance in instances}
    return with_site_nodes(sources.racks, attempts, own_nodes, now)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The attempts of a report, and what is doubtful about all of them."""

    attempts: tuple[Attempt, ...]
    set_aside: tuple[SetAside, ...]
    notes: tuple[str, ...] = ()


def _slurm_instances(
    sources: Sources, instances: Iterable[Instance], window: Window
) -> SlurmInstances:
    """Return the head's list of Slurm's instances.

    There are none if it does not answer.
    """
    first = min((item.launched for item in instances), default=window.since)
    try:
        return slurm_instances.read(sources.runner, sources.slurm_name, max(first, window.since))
    except (HeadNotReady, StackMissing):  # a note tells up to which time the records reach
        return slurm_instances.SlurmInstances(reach=0)


def _attempts(sources: Sources, records: Records, since: int, until: int, token: str) -> _Jobs:
    """Return the attempts of the records, and newer ones from the head."""
    recorded = records.attempts(sources.slurm_name, since, until)
    newer, sentences = [], []
    reach = recorded.reach
    if reach is not None:
        # slurmctld may have kept rows from slurmdbd while the last pages were written.
        reach = min(reach, settled(sources) or reach)
    if reach is None or reach < until:
        start = since if reach is None else max(since, reach - MARGIN)
        try:
            rows = sacct.read(sources.runner, start, until, token, cluster=sources.slurm_name)
            newer.append(rows)
        except NO_ANSWER as error:
            if reach is None:
                raise
            sentences.append(notes.records_end(reach, error.message))
    content = with_newer(recorded.content, *newer)
    return _Jobs(content.attempts, content.set_aside, tuple(sentences))


def _metrics(
    sources: Sources, records: Records, since: int, until: int
) -> tuple[Metrics, tuple[SetAside, ...]]:
    """Return what was measured, if it has a price.

    What can't be read comes beside it.
    """
    infrastructure = sources.infrastructure
    if infrastructure is None or not infrastructure.prices.has_metered:
        return NO_METRICS, ()
    first = since - since % slurm_records.DAY - LOOK_BACK
    recorded = records.metrics(first, until)
    return Metrics.of(recorded.rows), recorded.set_aside


def settled(sources: Sources) -> int | None:
    """Return the second before which no attempt can come late.

    The head tells it.
    """
    own = Bucket(sources.s3, sources.bucket)
    return record_age.parse(own.read_json(slurm_records.STATUS)).settled


def look_back(charged: Iterable[Instance], window: Window) -> int:
    """Return the first second whose attempts the charged instances need.

    No job is on the head. A static node's idle time is nobody's, whatever ran there before.
    """
    launches = [item.launched for item in charged if not (item.is_head or item.static)]
    first = min([*launches, window.since])
    return max(first, window.since - LONGEST_LOOK_BACK)


def _nodes(
    sources: Sources,
    racks: Mapping[str, RackNode],
    charged: Iterable[Instance],
    catalogue: Catalogue,
) -> Iterable[NodeInfo]:
    """Return Slurm's nodes, if a type or a rack lacks a shape."""
    racks_have_shapes = all(rack.shape for rack in racks.values())
    if racks_have_shapes and all(
        item.is_head or item.instance_type in catalogue.shapes for item in charged
    ):
        return ()
    try:
        return slurm_nodes.read_nodes(sources.runner)
    except NO_ANSWER:
        return ()  # the note on such an instance says that its size is unknown


def with_static_nodes(
    instances: Iterable[Instance], static_nodes: frozenset[str]
) -> list[Instance]:
    """Return the instances, those of static nodes marked."""
    return [
        item
        if item.static == (item.node in static_nodes)
        else replace(item, static=not item.static)
        for item in instances
    ]


def overlaps(instance: Instance, window: Window) -> bool:
    # A short-lived instance is billed beyond its end; `allocate` knows by how much.
    return instance.launched < window.until and (
        instance.ended is None or instance.ended + Policy().minimum_seconds > window.since
    )
