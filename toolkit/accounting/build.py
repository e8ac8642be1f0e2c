"""Builds a report from attempts, instances and prices. Pure: all input is in the arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from toolkit.accounting import notes, storage
from toolkit.accounting.allocation import Policy, Window, billed_spans, weigh
from toolkit.accounting.attempt_instances import match_instances
from toolkit.accounting.attempts import with_resizes
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.lives import billed_lives
from toolkit.accounting.metrics import NO_METRICS
from toolkit.accounting.racks import rack_use, with_rates
from toolkit.accounting.resources import unused_commitment
from toolkit.accounting.runaways import ends_of_runaways, with_ends
from toolkit.accounting.segments import Segment, report_of
from toolkit.prices import Life, cover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.accounting.attempt_instances import InstanceMatch, Usage
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.metrics import Metrics
    from toolkit.accounting.parts import InstanceParts
    from toolkit.accounting.racks import RackNode, RackUse
    from toolkit.accounting.report import Report
    from toolkit.accounting.resources import Resource
    from toolkit.accounting.set_aside import SetAside
    from toolkit.accounting.storage import Infrastructure
    from toolkit.prices import PriceBook, Shape

NO_RACKS: Mapping[str, RackNode] = MappingProxyType({})


def build(
    *,
    cluster: str,
    attempts: Sequence[Attempt],
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    book: PriceBook,
    window: Window,
    now: int,
    policy: Policy | None = None,
    set_aside: Sequence[SetAside] = (),
    disagreements: Sequence[str] = (),
    cost_policy: CostPolicy | None = None,
    racks: Mapping[str, RackNode] = NO_RACKS,
    infrastructure: Infrastructure | None = None,
    metrics: Metrics = NO_METRICS,
) -> Report:
    """Build the report of one window.

    `attempts` must reach back to the launch of the first instance that overlaps the
    window. The jobs before it tell boot and idle time apart. `shapes` is by instance id,
    `racks` by node.
    """
    built = segment(
        attempts=attempts,
        instances=instances,
        shapes=shapes,
        book=book,
        window=window,
        now=now,
        policy=policy,
        set_aside=set_aside,
        disagreements=disagreements,
        cost_policy=cost_policy,
        racks=racks,
        infrastructure=infrastructure,
        metrics=metrics,
    )
    return report_of(cluster, [built], now, built.cost_policy)


def segment(
    *,
    attempts: Sequence[Attempt],
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    book: PriceBook,
    window: Window,
    now: int,
    policy: Policy | None = None,
    set_aside: Sequence[SetAside] = (),
    disagreements: Sequence[str] = (),
    cost_policy: CostPolicy | None = None,
    racks: Mapping[str, RackNode] = NO_RACKS,
    infrastructure: Infrastructure | None = None,
    metrics: Metrics = NO_METRICS,
    matched_until: int | None = None,
    slurm_reach: int | None = None,
) -> Segment:
    """Weigh the costs of one window, and round nothing.

    `matched_until` is where a longer time ends, of which the window is a part: attempts and
    instances that began before it are matched. `slurm_reach` is the second up to which Slurm's
    own list of instances is known.
    """
    rules = Rules(policy or Policy(), cost_policy or CostPolicy())
    reach = Window(window.since, max(window.until, matched_until or 0))
    work = _work(
        with_resizes(attempts), instances, shapes, racks, window=window, reach=reach, now=now
    )
    book, resources = paid_in_advance(book, work.instances, rules.billing, window)
    if infrastructure is not None:
        resources += storage.resources(infrastructure, work.instances, window, metrics)
    parts = (
        *_instance_parts(work.instances, work.match, book, window, rules),
        *_rack_parts(work.use, with_rates(book, racks, window), window, rules),
        *(resource.parts for resource in resources),
    )
    all_instances = (
        *work.instances,
        *work.use.nodes,
        *(resource.instance for resource in resources),
    )
    by_id = {item.instance_id: item for item in all_instances}
    visible = [item for item in parts if item.is_visible(rules.payers)]
    in_window = [item for item in work.use.attempts if _overlaps(item, window, now)]
    without_cost = _without_cost(in_window, frozenset(work.match.without_instance))
    return Segment(
        window=window,
        parts=parts,
        instances={item.instance_id: by_id[item.instance_id] for item in parts},
        attempts={attempt.key: attempt for attempt in work.attempts},
        cost_policy=rules.payers,
        set_aside=tuple(set_aside),
        jobs_without_cost=tuple(dict.fromkeys(name for names in without_cost for name in names)),
        notes=(
            *notes.set_aside_notes(set_aside),
            *disagreements,
            *notes.instance_notes(visible, by_id, work.match, window),
            *notes.runaways(in_window, work.runaway_ends),
            *notes.rack_notes(work.use.without_shape),
            *notes.resource_notes(resources),
            *notes.start_bound(visible, by_id, window.since),
            *notes.attempt_notes(work.attempts, *without_cost),
            *notes.slurm_not_asked(visible, by_id, without_cost, slurm_reach, window),
        ),
        first_cost=window.since,
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """Attempts, with the racks and the instances that they ran on."""

    attempts: Sequence[Attempt]
    use: RackUse
    instances: Sequence[Instance]
    match: InstanceMatch
    runaway_ends: Mapping[int, int]


def _work(
    attempts: Sequence[Attempt],
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    racks: Mapping[str, RackNode],
    *,
    window: Window,
    reach: Window,
    now: int,
) -> _Work:
    """Match attempts with racks and instances, up to the end of `reach`."""
    use = rack_use(attempts, racks, window, now)
    lives = billed_lives(instances, use.attempts, now)
    match, runaway_ends = _matched(use, lives, shapes, reach, now)
    if runaway_ends:
        attempts = with_ends(attempts, runaway_ends)
        use = rack_use(attempts, racks, window, now)
    return _Work(attempts, use, lives, match, runaway_ends)


@dataclass(frozen=True, slots=True)
class Rules:
    """EC2's rules of billing, and the payers."""

    billing: Policy
    payers: CostPolicy


def paid_in_advance(
    book: PriceBook, instances: Iterable[Instance], policy: Policy, window: Window
) -> tuple[PriceBook, list[Resource]]:
    """Return the book with all commitments, and their unused rest."""
    lives = _lives(instances, policy, window)
    coverage = cover(book, lives, window.since, window.until)
    with_coverage = replace(book, fixed={**book.fixed, **coverage.spans})
    return with_coverage, [unused_commitment(item) for item in coverage.unused]


def _lives(instances: Iterable[Instance], policy: Policy, window: Window) -> Iterator[Life]:
    """Yield the billed lives, for the commitments that pay for them."""
    for instance in instances:
        if instance.never_ran:
            continue
        for span in billed_spans(instance, window.until, policy):
            yield Life(instance.price_query(), span.start, span.until)


def _matched(
    use: RackUse,
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    window: Window,
    now: int,
) -> tuple[InstanceMatch, Mapping[int, int]]:
    """Match attempts with instances; return the ends of runaways as well.

    Attempts and instances that began behind the window change none of its charges, so a
    window that is over stays as it is. They are asked only where a job has no instance.
    """
    begun = [attempt for attempt in use.attempts if attempt.begun < window.until]
    launched = [instance for instance in instances if instance.launched < window.until]
    match = match_instances(begun, launched, shapes, now)
    runaway_ends = ends_of_runaways(begun, {**match.usages, **_begun_usages(use, begun)})
    if runaway_ends:
        begun = with_ends(begun, runaway_ends)
        match = match_instances(begun, launched, shapes, now)
    if match.without_instance and len(launched) < len(instances):
        keys = frozenset(match.without_instance)
        doubtful = [attempt for attempt in begun if attempt.key in keys]
        without_instance = match_instances(doubtful, instances, shapes, now).without_instance
        match = replace(match, without_instance=without_instance)
    return match, runaway_ends


def _begun_usages(use: RackUse, begun: Iterable[Attempt]) -> dict[str, list[Usage]]:
    """Return the usages of racks' nodes by these attempts."""
    keys = {attempt.key for attempt in begun}
    return {
        name: [usage for usage in usages if usage.attempt in keys]
        for name, usages in use.usages.items()
    }


def _instance_parts(
    instances: Iterable[Instance],
    match: InstanceMatch,
    book: PriceBook,
    window: Window,
    rules: Rules,
) -> Iterator[InstanceParts]:
    for instance in instances:
        item = weigh(
            instance,
            match.usages.get(instance.instance_id, ()),
            book,
            window,
            rules.billing,
            waits=match.waits.get(instance.instance_id, ()),
        )
        if item is not None:
            yield item


def _rack_parts(
    use: RackUse, book: PriceBook, window: Window, rules: Rules
) -> Iterator[InstanceParts]:
    for node in use.nodes:
        usages = use.usages.get(node.instance_id, ())
        item = weigh(node, usages, book, window, rules.billing)
        if item is not None:
            yield item


def _without_cost(
    attempts: Iterable[Attempt], without_instance: frozenset[int]
) -> tuple[list[str], list[str]]:
    """Return jobs without a known instance, and jobs on other nodes."""
    jobs_without_instance, jobs_elsewhere = set(), set()
    for attempt in attempts:
        if attempt.key in without_instance:
            jobs_without_instance.add(f"job {attempt.job}")
        priced = len(attempt.nodes) + attempt.rack_node_count
        if attempt.node_count > priced and attempt.certainly_ran:
            jobs_elsewhere.add(f"job {attempt.job}")
    return sorted(jobs_without_instance), sorted(jobs_elsewhere)


def _overlaps(attempt: Attempt, window: Window, now: int) -> bool:
    end = now if attempt.ended is None else attempt.ended
    return (attempt.started or 0) < window.until and end > window.since
