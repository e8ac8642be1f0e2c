"""Asks the head for the burst governor's decisions, rules and partitions: one command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import governor
from slurmplugins.model.queued_job import NodeGroup, QueuePartition
from toolkit.errors import HeadCommandFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.config.governor import GovernorConfig
    from toolkit.head_runner import Runner

AS_SLURM: Final = ("/usr/sbin/runuser", "-u", "slurm", "--")
PLAN: Final = ("/opt/slurm-toolkit/bin/slurm-govern", "--plan")


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A waiting job of racks, and the decision about it."""

    job: int
    label: str
    account: str
    rack: str
    cloud: str
    bursts: bool
    reason: str
    text: str
    waited: float  # seconds
    expected_in: float | None  # seconds
    usd: Decimal | None  # at worst; None if not known
    nodes: int | None


@dataclass(frozen=True, slots=True)
class AccountBudget:
    """An account's burst budget of this month, and what is left of it."""

    account: str
    usd_spent: Decimal
    """Of jobs that ended, and of running ones at worst."""
    usd_committed: Decimal
    """The worst cost of jobs that may burst and wait."""
    usd_per_month: Mapping[str, Decimal]
    """By the partition of racks."""


@dataclass(frozen=True, slots=True)
class BurstFacts:
    """Everything that the head says about bursts."""

    at: float
    jobs: tuple[WaitingJob, ...]
    accounts: tuple[AccountBudget, ...]
    problems: Mapping[str, str]
    governor: GovernorConfig
    partitions: Mapping[str, QueuePartition]


def fetch(head: Runner, as_user: Sequence[str] = AS_SLURM) -> BurstFacts:
    """Return the facts of the host of slurmctld, as SlurmUser. Raises HeadCommandFailed."""
    output = head.run([*as_user, *PLAN], timeout=120)
    try:
        return parse(json.loads(output))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise HeadCommandFailed(f"slurm-govern's answer can't be read: {error}") from error


def parse(value: Mapping[str, Any]) -> BurstFacts:
    """Read the answer of `slurm-govern --plan`.

    Raises KeyError, TypeError, ValueError, AttributeError or ArithmeticError.
    """
    return BurstFacts(
        at=float(value["at"]),
        jobs=tuple(_job(item) for item in value["decisions"]),
        accounts=tuple(
            AccountBudget(
                account=str(item["account"]),
                usd_spent=Decimal(item["usd_spent"]),
                usd_committed=Decimal(item["usd_committed"]),
                usd_per_month={rack: Decimal(u) for rack, u in item["usd_per_month"].items()},
            )
            for item in value["accounts"]
        ),
        problems={str(name): str(text) for name, text in value["problems"].items()},
        governor=governor.parse({governor.KEY: value["governor"]}),
        partitions={item["name"]: _partition(item) for item in value["partitions"]},
    )


def _job(item: Mapping[str, Any]) -> WaitingJob:
    return WaitingJob(**{**item, "usd": None if item["usd"] is None else Decimal(item["usd"])})


def _partition(item: Mapping[str, Any]) -> QueuePartition:
    groups = (
        NodeGroup(**{**group, "features": frozenset(group["features"])}) for group in item["groups"]
    )
    return QueuePartition(**{**item, "groups": tuple(groups)})
