"""Asks the head for the account budgets' figures and changes: one command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from toolkit.errors import HeadCommandFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.head_runner import Runner

PROGRAM: Final = (
    *("/usr/sbin/runuser", "-u", "slurm", "--"),
    "/opt/slurm-toolkit/bin/slurm-budget",
)
PLAN: Final = (*PROGRAM, "--plan")
PASS_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Override:
    """A person's exception from a budget."""

    usd: str
    """US dollars that are added, or `lift`."""
    until: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """A budget at one moment."""

    name: str
    accounts: tuple[str, ...]
    projects: tuple[str, ...]
    period: str
    begin: datetime
    end: datetime
    usd: Decimal
    usd_spent: Decimal
    usd_committed: Decimal
    usd_free: Decimal | None
    """What new jobs may still commit; None: no step holds any."""
    usd_forecast: Decimal
    step: int | None
    """Percent of the step that was reached."""
    actions: tuple[str, ...]
    since: datetime | None
    """When that step was reached."""
    stale: bool
    ended: bool
    """A grant that ended: it pays no job."""
    override: Override | None


@dataclass(frozen=True, slots=True)
class SlurmChange:
    """A change that the next pass makes in Slurm."""

    subject: str
    """Such as `account vision`."""
    setting: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """Everything that the head says about account budgets."""

    at: datetime
    measured_from: datetime | None
    measured_until: datetime | None
    closed_until: str
    """The last day whose amounts are a report's; empty: none."""
    budgets: tuple[BudgetFigures, ...]
    changes: tuple[SlurmChange, ...]
    problems: tuple[str, ...]
    limits: Mapping[str, Any]
    """The budgets that the head has, as burst.json has them."""


def fetch(head: Runner, *, timeout: float = PASS_SECONDS) -> BudgetFacts:
    """Return the head's facts. Raises HeadCommandFailed."""
    output = head.run(PLAN, timeout=timeout)
    try:
        return parse(json.loads(output))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise HeadCommandFailed(f"slurm-budget's answer can't be read: {error}") from error


def parse(value: Mapping[str, Any]) -> BudgetFacts:
    """Read the answer of `slurm-budget --plan`.

    Raises KeyError, TypeError, ValueError, AttributeError or ArithmeticError.
    """
    return BudgetFacts(
        at=_moment(value["at"]),
        measured_from=_moment(value["measured_from"]) if value["measured_from"] else None,
        measured_until=_moment(value["measured_until"]) if value["measured_until"] else None,
        closed_until=str(value["closed_until"]),
        budgets=tuple(_figures(item) for item in value["budgets"]),
        changes=tuple(_change(item) for item in value["changes"]),
        problems=tuple(map(str, value["problems"])),
        limits=dict(value["config"]["limits"]),
    )


def _figures(item: Mapping[str, Any]) -> BudgetFigures:
    override = item["override"]
    free = item["usd_free"]
    return BudgetFigures(
        name=str(item["name"]),
        accounts=tuple(map(str, item["accounts"])),
        projects=tuple(map(str, item["projects"])),
        period=str(item["period"]),
        begin=_moment(item["begin"]),
        end=_moment(item["end"]),
        usd=Decimal(item["usd"]),
        usd_spent=Decimal(item["usd_spent"]),
        usd_committed=Decimal(item["usd_committed"]),
        usd_free=None if free is None else Decimal(free),
        usd_forecast=Decimal(item["usd_forecast"]),
        step=None if item["step"] is None else int(item["step"]),
        actions=tuple(map(str, item["actions"])),
        since=None if item["since"] is None else _moment(item["since"]),
        stale=item["stale"] is True,
        ended=item["ended"] is True,
        override=None if override is None else _override(override),
    )


def _override(item: Mapping[str, Any]) -> Override:
    return Override(str(item["usd"]), _moment(item["until"]), str(item["by"]), str(item["reason"]))


def _change(item: Mapping[str, Any]) -> SlurmChange:
    kind = next(key for key in ("account", "partition", "job") if key in item)
    value = item["value"]
    return SlurmChange(
        f"{kind} {item[kind]}",
        str(item["setting"]),
        "no limit" if value is None else str(value) or "none",
        str(item["why"]),
    )


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(float(at), UTC)
