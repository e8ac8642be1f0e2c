"""The launch budget's record: the launches for jobs that have not begun.

Losing the record gives every job a new budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

BUDGET_PER_NODE: Final = 3
"""Instances that may be launched per requested node, while the job has not begun."""

SMALLEST_BUDGET: Final = 6
"""The budget of the smallest jobs: more launches than protected mode needs to shut a pool.

Protected mode judges instances that never become nodes better.
"""

START_SECONDS: Final = 5.0
"""Seconds from the start of ResumeProgram to its first call, from which EC2 refills its bucket."""

MAX_REFUSED_TERMINATIONS: Final = 3
"""Programs in a row that could terminate no instance. One success resets the count."""

SHUT_SECONDS: Final = 600.0
"""Seconds without launches after the last refused termination.

Reconcile tries again every 15 s. So they pass only if nothing is left to be terminated, or if
reconcile does not run.
"""

REMEMBERED_SECONDS: Final = 24 * 3600.0
"""Seconds after a job's last launch until the job is forgotten.

It was cancelled then, or waits for something else.
"""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate at which EC2 launches instances, and the time for one job."""

    burst: float
    """Instances at once."""
    per_second: float
    """Instances per second after that."""
    seconds: float
    """The time for one job: half of ResumeTimeout."""
    is_configured: bool
    """cluster.yaml states the rate. Otherwise it is EC2's published one; the account may have more.
    """

    @property
    def max_instances(self) -> float:
        """Return the most instances that one job can get in time."""
        return self.burst + self.per_second * max(0.0, self.seconds - START_SECONDS)


@dataclass(frozen=True, slots=True)
class UnresolvedLaunch:
    """A launch for a job without an answer."""

    attempt: str
    count: int
    """Instances that it may have started for the job."""
    at: float
    """The time, by the persistent clock."""


@dataclass(frozen=True, slots=True)
class LaunchHistory:
    """The launches for one job that has not begun."""

    asked: int
    """The most nodes that it needed at once."""
    started: int = 0
    """Instances launched for it."""
    since: float = 0.0
    """The time of the first launch, by the persistent clock."""
    at: float = 0.0
    """The time of the last launch, by the persistent clock."""
    nodes: str = ""
    """Hostlist of the nodes that it waits for. When all of them are up, the job has begun.

    Empty after its launch failed, or after its nodes were launched for another job. Then only Slurm
    tells whether it has begun on other nodes.
    """
    slug: str = ""
    """The reason code of the verdict on it, empty without one."""
    message: str = ""
    """The text of the verdict."""
    held: bool = False
    """Slurm holds the job for the verdict. When it comes back, a person has released it."""
    doubts: tuple[UnresolvedLaunch, ...] = ()
    """Launches with an unknown outcome. They make the job wait, and do not hold it."""

    @property
    def budget(self) -> int:
        """Return the number of instances that may be launched for the job."""
        return max(SMALLEST_BUDGET, BUDGET_PER_NODE * self.asked)

    @property
    def unresolved_count(self) -> int:
        """Return the number of instances that unanswered launches may have started."""
        return sum(launch.count for launch in self.doubts)


@dataclass(frozen=True, slots=True)
class RefusedTerminations:
    """Programs in a row that could terminate no instance."""

    count: int = 0
    code: str = ""
    """EC2's last error code."""
    since: float = 0.0
    """The time of the first refusal, by the persistent clock."""
    at: float = 0.0
    """The time of the last refusal, by the persistent clock."""

    def launches_blocked(self, now: float) -> bool:
        """Return whether nothing may be launched."""
        return self.count >= MAX_REFUSED_TERMINATIONS and abs(now - self.at) < SHUT_SECONDS


@dataclass(frozen=True, slots=True)
class Record:
    """The launch budget's record."""

    jobs: Mapping[int, LaunchHistory] = field(default_factory=dict)
    """Jobs that had launches and have not begun, by number."""
    ends: RefusedTerminations = field(default_factory=RefusedTerminations)
    """Recent refused terminations."""
