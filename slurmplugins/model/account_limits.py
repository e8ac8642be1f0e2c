"""An account's limits and use as Slurm has them, and the jobs that count. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

UNITS_PER_USD: Final = 60_000
"""Billing is milli-dollars an hour, and Slurm counts it by minutes."""


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """Limits and use of an account, with all users and accounts below it.

    Billing is in TRES minutes.
    """

    account: str
    used: int
    """What slurmctld has counted, as PriorityDecayHalfLife has left it."""
    running: int
    """What running jobs may still use until their time limits."""
    group_minutes: int | None = None
    """GrpTRESMins=billing; None: no limit."""
    run_minutes: int | None = None
    """GrpTRESRunMins=billing."""
    submissions: int | None = None
    """GrpSubmitJobs."""


@dataclass(frozen=True, slots=True)
class PartitionMoney:
    """Settings of a partition that have to do with money."""

    denied: frozenset[str] = frozenset()
    """DenyAccounts."""
    weights: str = ""
    """TRESBillingWeights."""


@dataclass(frozen=True, slots=True)
class BilledJob:
    """A job that waits, runs or ended some minutes ago. Times are epoch seconds."""

    id: int
    account: str
    states: frozenset[str]
    partitions: tuple[str, ...] = ()
    reason: str = ""
    nodes: tuple[str, ...] = ()
    begin: float = 0.0
    end: float | None = None
    """Of a running job: when its time limit ends it."""
    usd_per_hour: Decimal = Decimal(0)
    """By its billing TRES."""
    submitted: float = 0.0
    """When this attempt was submitted: slurmctld sets it anew at each requeue. 0: not known."""
    wckey: str = ""
    """The key of `sbatch --wckey`, as users wrote it."""
    usd_until_limit: Decimal | None = None
    """Of a waiting job: its cost until its time limit, by the weights of its partition.

    Of an array, as many tasks count as may run at once. None: it has no time limit.
    """
    tasks: int = 1
    """Of a waiting array: as many as may run at once."""
    may_requeue: bool = False
    """A batch job without --no-requeue."""

    @property
    def requeue_saves(self) -> bool:
        """Return whether it runs, costs something, and can be requeued."""
        return self.running and self.may_requeue and bool(self.usd_per_hour)

    @property
    def pending(self) -> bool:
        return "PENDING" in self.states

    @property
    def running(self) -> bool:
        """Return whether it has nodes, also while they boot."""
        return bool(self.states & {"RUNNING", "SUSPENDED"})
