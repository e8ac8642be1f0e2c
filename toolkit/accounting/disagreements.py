"""Sentences on what two sources say differently of one instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.accounting.phrases import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.accounting.instances import Instance

SAME_MOMENT: Final = 60
"""Seconds by which two sources of one time may differ."""

MOST_SENTENCES: Final = 20
"""A report tells so many disagreements of two sources, and counts the others."""

LEDGER: Final = "the instance ledger"
EC2: Final = "EC2"


def limited(sentences: Iterable[str]) -> list[str]:
    """Return the first sentences, and one that counts the rest."""
    every = list(sentences)
    if len(every) <= MOST_SENTENCES:
        return every
    rest = len(every) - MOST_SENTENCES
    return [*every[:MOST_SENTENCES], f"and {rest} more of these"]


def differ(first: int | None, second: int | None, slack: int = SAME_MOMENT) -> bool:
    """Return whether two sources tell two times.

    What one lacks does not differ.
    """
    return first is not None and second is not None and abs(first - second) > slack


def with_ec2(recorded: Instance, ec2_instance: Instance) -> Iterator[str]:
    """Yield what the ledger and EC2 say differently of one instance."""
    name = recorded.instance_id
    if all(differ(start, ec2_instance.launched) for start in recorded.starts):
        yield (
            f"{name}: launched {moment(recorded.launched)} by {LEDGER},"
            f" {moment(ec2_instance.launched)} by EC2; it was stopped in between, and is billed"
            " from the former without a break"
        )
    if recorded.end_seen and differ(recorded.ended, ec2_instance.ended):
        yield (
            f"{name}: ended {moment(recorded.ended)} by {LEDGER},"
            f" {moment(ec2_instance.ended)} by EC2; billed to the former"
        )
    for what, former, latter in (
        ("type", recorded.instance_type, ec2_instance.instance_type),
        ("lifecycle", recorded.lifecycle, ec2_instance.lifecycle),
    ):
        if latter and former != latter:
            yield f"{name}: {what} {former} by {LEDGER}, {latter} by EC2; billed as the former"
    if recorded.node and ec2_instance.node and recorded.node != ec2_instance.node:
        which = "latter" if is_older(recorded) else "former"
        yield (
            f"{name}: node {recorded.node} by {LEDGER}, {ec2_instance.node} by EC2; jobs are"
            f" looked for on the {which}"
        )


def is_older(recorded: Instance) -> bool:
    """Return whether a record is older than EC2's answer.

    A living instance may be given to another node, and its record has that a pass later.
    """
    return recorded.ended is None
