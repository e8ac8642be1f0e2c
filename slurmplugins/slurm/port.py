"""The Slurm port: what the engine reads from and tells slurmctld."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.node import EndedJob, Job, Node


NODES_IN_CALL: Final = 500
"""Keeps one argument far below the kernel's 128 KiB for a single argument."""


class Slurm(Protocol):
    """Every method raises SlurmUnreachable or SlurmRefused. Writes may be repeated."""

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """All nodes, or those named; SlurmRefused when one of the names is not a node."""
        ...

    def jobs(self, nodes: Sequence[str] | None = None) -> tuple[Job, ...]:
        """Jobs that are pending or running, or only those on these nodes."""
        ...

    def het_jobs(self) -> Mapping[int, int]:
        """The het job, by its number, of each component, also of those in the queue again."""
        ...

    def assign(self, assignments: Sequence[Assignment]) -> None:
        """Tell Slurm which machine is which node: address, instance id, instance type."""
        ...

    def down(self, nodes: Sequence[str], reason: str) -> None:
        """Set down: jobs there are requeued at once. What a person has drained keeps their reason,
        which says when it may go on.
        """
        ...

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        """Let nothing new start there; what a person has drained is left as it is."""
        ...

    def power_down(self, nodes: Sequence[str]) -> None:
        """Power down when idle; at once when the node is down."""
        ...

    def power_up(self, nodes: Sequence[str]) -> None:
        """Ask for the machines of nodes that are powered down, although no job wants them."""
        ...

    def resume(self, nodes: Sequence[str]) -> None:
        """Clear down and drain; a node that is powering down counts as powered down."""
        ...

    def comment(self, job: int, text: str) -> None:
        """Append a line to the job's AdminComment; what others wrote there stays."""
        ...

    def hold(self, job: int) -> None:
        """Keep a pending job from starting until a person releases it."""
        ...

    def ended(self) -> tuple[EndedJob, ...]:
        """Every batch job that slurmctld still knows, those that ended minutes ago too."""
        ...

    def requeue(self, job: int) -> None:
        """Put a batch job that runs or is over back into the queue."""
        ...
