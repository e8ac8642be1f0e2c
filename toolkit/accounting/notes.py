"""The notes of a report: what is doubtful in it, what was left out, what disagrees."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from toolkit.accounting.phrases import moment
from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.set_aside import SetAside

LONG_PENDING: Final = 600
"""Seconds. An instance is seldom pending for longer, so reconcile may have looked late."""

SAME_MOMENT: Final = 60
"""Seconds by which two sources of one time may differ."""

_SOURCE_NOTES = {
    PriceSource.CATALOGUE_FOR_SPOT: "spot without price history, at the on-demand price: too high",
    PriceSource.UNKNOWN: "no price known: their cost is unknown and in no sum",
}


def instance_notes(costs: Sequence[InstanceCost], by_id: Mapping[str, Instance]) -> list[str]:
    """Return what is doubtful about the charged instances."""
    instances = [by_id[cost.instance_id] for cost in costs]
    return [
        *price_notes(costs),
        *end_notes(instances),
        *start_notes(instances),
        *reversed_lives(instances),
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


def price_notes(costs: Iterable[InstanceCost]) -> list[str]:
    ids_by_source: dict[PriceSource, list[str]] = defaultdict(list)
    for cost in costs:
        for source in cost.sources:
            ids_by_source[source].append(cost.instance_id)
    return [
        f"{_first_few(ids_by_source[source])}: {text}"
        for source, text in _SOURCE_NOTES.items()
        if ids_by_source[source]
    ]


def set_aside_notes(set_aside: Iterable[SetAside]) -> list[str]:
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for item in set_aside:
        cost = "cost unknown" if item.has_unknown_cost else "not counted twice"
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


def disagreements(recorded: Instance, ec2_instance: Instance) -> list[str]:
    """Return what the ledger and EC2 say differently of one instance."""
    sentences = []
    if abs(recorded.launched - ec2_instance.launched) > SAME_MOMENT:
        sentences.append(
            f"{recorded.instance_id}: launched {moment(recorded.launched)} by the instance ledger,"
            f" {moment(ec2_instance.launched)} by EC2; it was stopped in between, and is billed"
            " from the former without a break"
        )
    ends = (recorded.ended, ec2_instance.ended)
    if (
        recorded.end_seen
        and None not in ends
        and abs((ends[0] or 0) - (ends[1] or 0)) > SAME_MOMENT
    ):
        sentences.append(
            f"{recorded.instance_id}: ended {moment(ends[0])} by the instance ledger,"
            f" {moment(ends[1])} by EC2; billed to the former"
        )
    return sentences


def records_end(reach: int, reason: str) -> str:
    """Return a note on a report without the head's answer."""
    return (
        f"the head node does not answer ({reason}): attempts are known up to {moment(reach)} UTC,"
        " and later time shows as idle"
    )
