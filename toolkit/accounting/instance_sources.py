"""Joins Slurm's own instance accounting with the instances of ledger and EC2.

An instance that Slurm alone knows is in the report: from its node's power-up to its
power-down, at the price of its type. A note names it, since these are not EC2's times. Of
every other instance Slurm's times are a second source.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from toolkit.accounting.disagreements import differ, limited
from toolkit.accounting.instances import Instance
from toolkit.accounting.phrases import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.slurm_instances import SlurmInstance

SLACK: Final = 900
"""Seconds by which Slurm's times may differ from EC2's: a power-down ends after SuspendTimeout."""


@dataclass(frozen=True, slots=True)
class JoinedInstances:
    """All instances by launch, and what their sources say differently of them."""

    instances: tuple[Instance, ...]
    disagreements: tuple[str, ...] = ()


def joined(
    instances: Iterable[Instance],
    slurm_instances: Iterable[SlurmInstance],
    *,
    window: Window | None = None,
    trail: Trail | None = None,
) -> JoinedInstances:
    """Return the instances with Slurm's evidence, and those that Slurm alone knows.

    Of a window, the latter are those that lived in it, and so are the disagreements'.
    """
    rows_by_id: dict[str, list[SlurmInstance]] = defaultdict(list)
    for row in slurm_instances:
        rows_by_id[row.instance_id].append(row)
    known: list[Instance] = []
    sentences: list[str] = []
    for instance in instances:
        rows = rows_by_id.pop(instance.instance_id, None)
        if rows is None:
            known.append(instance)
            continue
        known.append(replace(instance, powered_down=_end(rows)))
        if _lived_in(instance, window):
            sentences.extend(_disagreements(instance, rows))
    all_unknown = [_exact(_instance(rows), trail) for rows in rows_by_id.values()]
    unknown = [instance for instance in all_unknown if _lived_in(instance, window)]
    sentences = [
        *limited(sentences),
        *limited(map(_unknown_sentence, unknown)),
        *limited(_trail_disagreements(unknown, rows_by_id)),
    ]
    ordered = sorted((*known, *unknown), key=lambda item: (item.launched, item.instance_id))
    return JoinedInstances(tuple(ordered), tuple(sentences))


def _lived_in(instance: Instance, window: Window | None) -> bool:
    return window is None or instance.lived_in(window.since, window.until)


def _exact(instance: Instance, trail: Trail | None) -> Instance:
    """Return an instance of Slurm's, with CloudTrail's end if there is one."""
    if trail is None:
        return instance
    exact = trail.completed(replace(instance, end_seen=False))
    return exact if exact.end_seen else replace(exact, end_seen=instance.end_seen)


def _trail_disagreements(
    exact: Iterable[Instance], rows_by_id: Mapping[str, Iterable[SlurmInstance]]
) -> Iterator[str]:
    """Yield other ends of instances that Slurm alone knows."""
    for instance in exact:
        powered_down = _end(rows_by_id[instance.instance_id])
        if differ(powered_down, instance.ended, SLACK):
            yield (
                f"{instance.instance_id}: powered down {moment(powered_down)} by Slurm, ended"
                f" {moment(instance.ended)} by CloudTrail; billed to the latter"
            )


def _end(rows: Iterable[SlurmInstance]) -> int | None:
    ends = [row.ended for row in rows]
    return None if None in ends else max((end for end in ends if end is not None), default=None)


def _instance(rows: Sequence[SlurmInstance]) -> Instance:
    last = max(rows, key=lambda row: (row.started, row.node))
    ended = _end(rows)
    return Instance(
        instance_id=last.instance_id,
        node=last.node,
        pool="",
        instance_type=last.instance_type,
        zone=last.zone,
        spot=last.spot,
        launched=min(row.started for row in rows),
        ended=ended,
        end_cause="",
        tag_price=last.price,
        # EC2 lists what runs. An instance that it does not list has ended, and nobody saw it.
        end_seen=ended is not None,
    )


def _unknown_sentence(instance: Instance) -> str:
    end = "last evidence" if instance.ended is None else f"end {moment(instance.ended)}"
    # slurmd of 26.05 loses Extra, which tells zone and Spot.
    unknown = "" if instance.zone else "; Slurm has no Extra of it, so it counts as On-Demand"
    return (
        f"{instance.instance_id}: known to Slurm alone, as {instance.node} of type"
        f" {instance.instance_type}; billed from its power-up {moment(instance.launched)} to its"
        f" {end}{unknown}"
    )


def _disagreements(instance: Instance, rows: Sequence[SlurmInstance]) -> Iterator[str]:
    """Yield what Slurm says differently of a known instance."""
    name, start, end = instance.instance_id, min(row.started for row in rows), _end(rows)
    nodes, types = {row.node for row in rows}, {row.instance_type for row in rows}
    if instance.node and instance.node not in nodes:
        yield f"{name}: node {instance.node} by the instance ledger, {_list(nodes)} by Slurm"
    if instance.instance_type not in types:
        recorded = instance.instance_type
        yield f"{name}: type {recorded} by the instance ledger, {_list(types)} by Slurm"
    if differ(start, instance.launched, SLACK):
        yield (
            f"{name}: launched {moment(instance.launched)} by the instance ledger, powered up"
            f" {moment(start)} by Slurm; billed from the former"
        )
    if instance.end_seen and differ(instance.ended, end, SLACK):
        yield (
            f"{name}: ended {moment(instance.ended)} by the instance ledger, powered down"
            f" {moment(end)} by Slurm; billed to the former"
        )


def _list(names: Iterable[str]) -> str:
    return " and ".join(sorted(names))
