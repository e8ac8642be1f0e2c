"""The notes of a report: what is doubtful in it, what was left out, what disagrees."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from toolkit.accounting.instances import NEVER_UP, Kind
from toolkit.accounting.money import SECONDS_PER_HOUR, exact_amount, round_to_micro, usd
from toolkit.accounting.phrases import moment
from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempt_instances import InstanceMatch
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.parts import InstanceParts
    from toolkit.accounting.resources import Resource
    from toolkit.accounting.set_aside import SetAside

LONG_PENDING: Final = 600
"""Seconds. An instance is seldom pending for longer, so reconcile may have looked late."""

CENT: Final = 10_000
"""Micro-dollars."""

_SOURCE_NOTES = {
    PriceSource.CATALOGUE_FOR_SPOT: "spot without price history, at the on-demand price: too high",
    PriceSource.UNKNOWN: (
        "no price known: their cost is unknown and in no sum; `toolkit prices import` reads AWS's"
        " price list of their region"
    ),
}


def instance_notes(
    costs: Sequence[InstanceParts],
    by_id: Mapping[str, Instance],
    match: InstanceMatch,
    window: Window,
) -> list[str]:
    """Return what is doubtful about the charged instances."""
    costs = [cost for cost in costs if by_id[cost.instance_id].kind is Kind.INSTANCE]
    instances = [by_id[cost.instance_id] for cost in costs]
    return [
        *price_notes(costs),
        *end_notes(instances),
        *start_notes(instances),
        *refund_notes(instances),
        *reversed_lives(instances),
        *stops(instances, window),
        *ownerless(instances, match),
    ]


def attempt_notes(
    attempts: Sequence[Attempt], jobs_without_instance: Sequence[str], jobs_elsewhere: Sequence[str]
) -> list[str]:
    """Return what is doubtful about the attempts."""
    sentences = reversed_attempts(attempts)
    if jobs_without_instance:
        text = "no instance known for their nodes: their cost is unknown"
        sentences.append(f"{_first_few(jobs_without_instance)}: {text}")
    if jobs_elsewhere:
        text = "some of their nodes are no instances, and the cost of these is unknown"
        sentences.append(f"{_first_few(jobs_elsewhere)}: {text}")
    return [*sentences, *missing_attempt_notes(attempts)]


def price_notes(costs: Iterable[InstanceParts]) -> list[str]:
    ids_by_source: dict[PriceSource, list[str]] = defaultdict(list)
    for cost in costs:
        for source in cost.sources:
            ids_by_source[source].append(cost.instance_id)
    return [
        f"{_first_few(ids_by_source[source])}: {text}"
        for source, text in _SOURCE_NOTES.items()
        if ids_by_source[source]
    ]


def resource_notes(resources: Iterable[Resource]) -> list[str]:
    """Return why the amounts of resources are unknown."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for item in resources:
        for why in item.why_unknown:
            names_by_reason[why].append(item.name)
    return [f"{_first_few(names)}: {why}" for why, names in names_by_reason.items()]


def rack_notes(nodes_without_shape: Sequence[str]) -> list[str]:
    """Return a note on nodes of racks whose size nobody knows."""
    text = "size not known, so a job is charged for all of it"
    return [f"{_first_few(nodes_without_shape)}: {text}"][: bool(nodes_without_shape)]


def unrated_racks(nodes: Collection[str]) -> list[str]:
    """Return a note on a site's nodes that cluster.yaml gives no rate."""
    text = "no rate in cluster.yaml (prices.racks), so jobs there cost nothing here"
    return [f"{_first_few(sorted(nodes))}: {text}"][: bool(nodes)]


def set_aside_notes(set_aside: Iterable[SetAside]) -> list[str]:
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for item in set_aside:
        cost = "cost unknown" if item.has_unknown_cost else "no cost is missing"
        names_by_reason[f"{item.reason}, set aside, {cost}"].append(item.name)
    return [f"{_first_few(names)}: {text}" for text, names in names_by_reason.items()]


def end_notes(instances: Iterable[Instance]) -> list[str]:
    ids = [instance.instance_id for instance in instances if not instance.end_seen]
    return [f"{_first_few(ids)}: end not seen, billed to the last evidence"][: bool(ids)]


def missing_attempt_notes(attempts: Iterable[Attempt]) -> list[str]:
    """Return a note on attempts that slurmdbd lacks.

    Slurm counted them as restarts. Their time would show as idle.
    """
    restarts_by_job: dict[str, set[int]] = defaultdict(set)
    for attempt in attempts:
        if attempt.restarts is not None:
            restarts_by_job[attempt.job_id].add(attempt.restarts)
    incomplete_jobs = sorted(
        f"job {job}"
        for job, restarts in restarts_by_job.items()
        if max(restarts) - min(restarts) + 1 > len(restarts)
    )
    return [f"{_first_few(incomplete_jobs)}: slurmdbd lacks an attempt, its time shows as idle"][
        : bool(incomplete_jobs)
    ]


def _first_few(names: Sequence[str]) -> str:
    first_names = ", ".join(names[:3])
    return first_names if len(names) <= 3 else f"{first_names} and {len(names) - 3} more"  # noqa: PLR2004


def start_notes(instances: Iterable[Instance]) -> list[str]:
    """Return a note on each instance that was seen running late."""
    return [
        f"{item.instance_id}: launched {moment(item.launched)}, first seen running"
        f" {moment(item.billed_from)}, billed from the latter"
        for item in instances
        if item.billed_from - item.launched > LONG_PENDING
    ]


def stops(instances: Iterable[Instance], window: Window) -> list[str]:
    """Return a note on each stop in the window."""
    return [
        f"{item.instance_id}: stopped {moment(stopped_at)}, started"
        f" {'never again' if started_at is None else moment(started_at)}: not billed in between"
        for item in instances
        for stopped_at, started_at in item.stops
        if stopped_at < window.until
        and (started_at is None or started_at > max(window.since, stopped_at))
    ]


def ownerless(instances: Iterable[Instance], match: InstanceMatch) -> list[str]:
    """Return a note on instances on which sacct has no job."""
    ids = [
        item.instance_id
        for item in instances
        if item.node
        and item.kind is Kind.INSTANCE
        and not (item.is_head or item.static)
        and item.end_cause not in NEVER_UP
        and not match.usages.get(item.instance_id)
        and not match.waits.get(item.instance_id)
    ]
    text = "sacct has no job on it, its time shows as idle; slurmdbd may have purged the job"
    return [f"{_first_few(ids)}: {text}"][: bool(ids)]


def runaways(attempts: Iterable[Attempt], ends: Mapping[int, int]) -> list[str]:
    """Return a note on each runaway job of the window."""
    return [
        f"job {item.job}: sacct has no end, and its node was given to another job: counted to"
        f" {moment(ends[item.key])}"
        for item in attempts
        if item.key in ends
    ]


def start_bound(
    costs: Iterable[InstanceParts], by_id: Mapping[str, Instance], since: int
) -> list[str]:
    """Return a note if EC2 may bill a cent more.

    A pass sees `running` late. Starts that have a note of their own are left out.
    """
    missing = 0
    for cost in costs:
        instance = by_id[cost.instance_id]
        late = instance.billed_from - instance.launched
        if instance.running is not None and late <= LONG_PENDING and instance.billed_from >= since:
            missing += round_to_micro(exact_amount(cost.prices[0].usd_per_hour, late))
    text = "instances ran before the pass that first saw them running"
    return [f"EC2 may bill up to {usd(missing):.2f} USD more: {text}"][: missing >= CENT]


def refund_notes(instances: Iterable[Instance]) -> list[str]:
    """Return a note on each refund that seconds of the start decide."""
    return [
        f"{item.instance_id}: interrupted within its first hour as passes saw it, refunded; it may"
        " have run for an hour, and then EC2 charges it"
        for item in instances
        if item.interrupted
        and item.ended is not None
        and item.ended - item.billed_from < SECONDS_PER_HOUR <= item.ended - item.launched
    ]


def reversed_lives(instances: Iterable[Instance]) -> list[str]:
    """Return a note on each instance that ends before its launch."""
    return [
        f"{item.instance_id}: launched {moment(item.launched)}, ended {moment(item.ended)}:"
        " billed for the least that EC2 bills"
        for item in instances
        if item.ended is not None and item.ended < item.launched
    ]


def reversed_attempts(attempts: Iterable[Attempt]) -> list[str]:
    """Return a note on each attempt that ends before its start."""
    return [
        f"job {item.job}: started {moment(item.started)}, ended {moment(item.ended)}:"
        " counted as no second"
        for item in attempts
        if item.started is not None and item.ended is not None and item.ended < item.started
    ]


def slurm_not_asked(
    costs: Iterable[InstanceParts],
    by_id: Mapping[str, Instance],
    without_cost: Iterable[Sequence[str]],
    reach: int | None,
    window: Window,
) -> list[str]:
    """Return a note if Slurm's own list may know what is missing."""
    if reach is None or reach >= window.until:
        return []
    is_incomplete = any(without_cost) or not all(by_id[item.instance_id].end_seen for item in costs)
    known = f"known up to {moment(reach)} UTC alone" if reach else "not known"
    text = "it may name instances and ends that are missing here"
    return [f"Slurm's own list of instances is {known}: {text}"][:is_incomplete]


def records_end(reach: int, reason: str) -> str:
    """Return a note on a report without the head's answer."""
    return (
        f"the head node does not answer ({reason}): attempts are known up to {moment(reach)} UTC,"
        " and later time shows as idle"
    )
