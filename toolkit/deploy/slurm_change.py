"""Decides what a deploy does to the versions of Slurm. Pure.

slurmctld understands slurmd of its own and of some earlier series, and none of a later one.
It reads the state of the same series, and writes it anew at once, so there is no way back:
https://slurm.schedmd.com/upgrades.html. Therefore the head node gets a new series first, by
a new instance, and nodes get it with their next instances.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.render.versions import NEWEST, OLDEST, SERIES, SlurmVersion

COMPATIBLE_SERIES = 3
"""The earlier series whose state and messages a series understands."""


@dataclass(frozen=True, slots=True)
class SlurmChange:
    """The Slurm of the running head node and that of the images to come."""

    head: str  # 24.11, or 25.11.8 where the image was built of locked packages
    images: str
    replaces_head: bool

    @property
    def problem(self) -> str:
        """Return why a deploy can't go on, or ""."""
        old, new = SlurmVersion.parse(self.head), SlurmVersion.parse(self.images)
        if old == new:
            return ""
        if new < old:
            return (
                f"the head node runs Slurm {self.head}, whose state Slurm {self.images} can't read:"
                " there is no way back to an earlier series"
            )
        if not old_enough(old, new):
            return (
                f"Slurm {self.images} can't read the state of Slurm {self.head}, which the head"
                f" node runs; it reads {', '.join(map(str, readable(new)))}"
            )
        if not self.replaces_head:
            return (
                f"the head node runs Slurm {self.head}, and slurm.conf and new nodes would be of"
                f" Slurm {self.images}"
            )
        return ""

    @property
    def next_step(self) -> str:
        """Return what to do about the problem."""
        old, new = SlurmVersion.parse(self.head), SlurmVersion.parse(self.images)
        if new < old:
            return f'set slurm.version to "{old}"'
        if not old_enough(old, new):
            return (
                "go there by a series in between, each with `toolkit deploy --replace-head --yes`"
            )
        return "add --replace-head --yes: slurmdbd and slurmctld come first, then nodes"

    def __str__(self) -> str:
        if self.head == self.images:
            return ""
        if SlurmVersion.parse(self.head) == SlurmVersion.parse(self.images):
            kept = "" if self.replaces_head else f"; the head node keeps {self.head}"
            return f"~ Slurm: new nodes get {self.images}{kept}"
        order = "slurmdbd, then slurmctld, then nodes by their next instances"
        return f"~ Slurm {self.head} → {self.images}: {order}"


def readable(version: SlurmVersion) -> tuple[SlurmVersion, ...]:
    """Return the series whose state this one reads, its own last."""
    at = SERIES.index(version)
    return SERIES[max(0, at - COMPATIBLE_SERIES) : at + 1]


def old_enough(old: SlurmVersion, new: SlurmVersion) -> bool:
    """Return whether `new` understands `old`; unknown series count as such."""
    if not (OLDEST <= old <= NEWEST and OLDEST <= new <= NEWEST):
        return True
    return old in readable(new)
