"""The Slurm port: the reads from slurmctld and the changes that the engine needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.node import EndedJob, Job, Node


NODES_IN_CALL: Final = 500
"""Nodes in one call. Keeps an argument far below the kernel's limit of 128 KiB."""


class Slurm(Protocol):
    """A Slurm cluster. Each method raises SlurmUnreachable or SlurmRefused, and may be repeated."""

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """Return all nodes, or the named nodes.

        Raises SlurmRefused if one of the names is not a node.
        """
        ...

    def jobs(self, nodes: Sequence[str] | None = None) -> tuple[Job, ...]:
        """Return pending and running jobs, or only the jobs on these nodes."""
        ...

    def het_jobs(self) -> Mapping[int, int]:
        """Return the het job's number by each component's number.

        Components of requeued het jobs are included.
        """
        ...

    def begun_jobs(self) -> frozenset[int]:
        """Return the running jobs whose nodes are all ready.

        A het job is listed by its own number, and only if all its components run.
        """
        ...

    def assign(self, assignments: Sequence[Assignment]) -> None:
        """Set each node's address, instance id and instance type."""
        ...

    def place(self, nodes: Sequence[str], topology: str) -> None:
        """Tell the nodes' place, from Slurm 25.11 on.

        It is a topology, and its switches down to the leaf. slurmctld makes switches that it does
        not know, and forgets the place at a power-down.
        """
        ...

    def down(self, nodes: Sequence[str], reason: str) -> None:
        """Set nodes DOWN; slurmctld requeues their jobs at once.

        A node that a person drained keeps that person's reason, which tells when the node may
        return to service.
        """
        ...

    def drain(self, nodes: Sequence[str], reason: str) -> None:
        """Drain nodes: no new job starts there.

        A node that a person drained is left unchanged.
        """
        ...

    def power_down(self, nodes: Sequence[str]) -> None:
        """Power down nodes: DOWN nodes at once, others when idle."""
        ...

    def power_up(self, nodes: Sequence[str]) -> None:
        """Power up powered-down nodes, although no job needs them."""
        ...

    def resume(self, nodes: Sequence[str]) -> None:
        """Clear DOWN and DRAIN.

        A node that is powering down counts as powered down then.
        """
        ...

    def comment(self, job: int, text: str) -> None:
        """Append a line to the job's AdminComment; other people's text stays."""
        ...

    def hold(self, job: int) -> None:
        """Hold a pending job: it starts only after a person releases it."""
        ...

    def ended_jobs(self) -> tuple[EndedJob, ...]:
        """Return every batch job that slurmctld still knows.

        Jobs that ended minutes ago are included.
        """
        ...

    def requeue(self, job: int) -> None:
        """Requeue a batch job that is running or has ended."""
        ...
