"""All that account budgets remember from pass to pass. Values, and their JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from slurmplugins.model.json_input import finite

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Override:
    """A person's exception from one account budget, with an end."""

    until: float
    by: str
    reason: str
    at: float
    usd: Decimal | None = None
    """US dollars that are added to the budget; None: no step holds."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The step that a budget has reached in a period."""

    period: float
    """The period's begin."""
    percent: int
    since: float


@dataclass(frozen=True, slots=True)
class Saved:
    """An account's limits as they were before the first hold; None: no limit."""

    run_minutes: int | None = None
    submissions: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """The spending so far, and the changes in Slurm that are ours."""

    measured_from: float = 0.0
    measured_until: float = 0.0
    closed_until: str = ""
    """The last day whose amounts are those of a report; empty: none."""
    days: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    """US dollars by account and day in UTC."""
    projects: Mapping[str, Mapping[str, Mapping[str, Decimal]]] = field(default_factory=dict)
    """Of these days: US dollars of jobs of projects with a budget, by project, account and day."""
    nobody: Mapping[str, Decimal] = field(default_factory=dict)
    """US dollars by day of instances that no job of any account had."""
    last_account: Mapping[str, str] = field(default_factory=dict)
    """By instance: the account whose job had it last. Its idle time is that account's."""
    last_project: Mapping[str, str] = field(default_factory=dict)
    """By instance: that job's project, if a budget is for it."""
    unclaimed: Mapping[str, Decimal] = field(default_factory=dict)
    """US dollars by instance that boots, for the first account whose job gets it."""
    standings: Mapping[str, Standing] = field(default_factory=dict)
    overrides: Mapping[str, Override] = field(default_factory=dict)
    limited: frozenset[str] = frozenset()
    """Accounts whose GrpTRESMins is ours."""
    held: Mapping[str, Saved] = field(default_factory=dict)
    """Accounts whose GrpTRESRunMins is ours, with their own limits."""
    refused: frozenset[str] = frozenset()
    """Accounts whose GrpSubmitJobs is ours."""
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By partition: the accounts in DenyAccounts that are ours."""
    held_jobs: frozenset[int] = frozenset()
    """Waiting jobs of projects that are held by us."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """By waiting job: our last line in its AdminComment."""


def spent(
    memory: Memory, accounts: frozenset[str], projects: frozenset[str], first: str, last: str
) -> Decimal:
    """Return what accounts and projects cost between two days.

    Both days are included. A project's jobs in one of these accounts count once.
    """
    items = [memory.days.get(account, {}) for account in accounts]
    for project in projects:
        by_account = memory.projects.get(project, {})
        items += [days for account, days in by_account.items() if account not in accounts]
    return sum(
        (usd for days in items for day, usd in days.items() if first <= day <= last), Decimal(0)
    )


def is_closed(memory: Memory, day: str) -> bool:
    """Return whether the day's amounts are those of a report.

    Days that are older than a report's first one are not.
    """
    amounts = (*memory.days.values(), memory.nobody)
    return day <= memory.closed_until and any(day in items for items in amounts)


def without_days_before(memory: Memory, oldest: str) -> Memory:
    """Return the memory without the spending of days before the oldest one."""

    def kept(by_account: Mapping[str, Mapping[str, Decimal]]) -> dict[str, dict[str, Decimal]]:
        return {name: recent(items) for name, items in by_account.items()}

    def recent(items: Mapping[str, Decimal]) -> dict[str, Decimal]:
        return {day: usd for day, usd in items.items() if day >= oldest}

    return replace(
        memory,
        days=kept(memory.days),
        projects={name: kept(items) for name, items in memory.projects.items()},
        nobody=recent(memory.nobody),
    )


def restored(memory: Memory, *, same_cluster: bool) -> Memory:
    """Return what holds of a backup's memory in a new cluster.

    Its jobs and instances are gone. Limits of accounts came back with slurmdbd, but those of a
    cluster of another name are not this one's.
    """
    kept = replace(
        memory, last_account={}, last_project={}, unclaimed={}, held_jobs=frozenset(), notes={}
    )
    if same_cluster:
        return replace(kept, denied={})
    return replace(kept, limited=frozenset(), held={}, refused=frozenset(), denied={})


def memory_meanwhile(before: Memory, after: Memory) -> Memory:
    """Return the memory while a pass changes Slurm.

    Limits that were ours are so until they are gone, and no job has its new line yet.
    """
    denied = {
        name: before.denied.get(name, frozenset()) | after.denied.get(name, frozenset())
        for name in before.denied.keys() | after.denied.keys()
    }
    return replace(
        after,
        limited=before.limited | after.limited,
        held={**after.held, **before.held},
        refused=before.refused | after.refused,
        denied=denied,
        notes=before.notes,
    )


def to_json(memory: Memory) -> dict[str, Any]:
    """Return the file's content; amounts become text."""
    value = asdict(memory)
    for name in ("limited", "refused"):
        value[name] = sorted(value[name])
    value["held_jobs"] = sorted(memory.held_jobs)
    value["denied"] = {name: sorted(items) for name, items in memory.denied.items()}
    return value


def from_json(data: Mapping[str, Any]) -> Memory:
    """Read the file's content, also that of an earlier head.

    Raises KeyError, TypeError, ValueError, AttributeError or ArithmeticError.
    """
    return Memory(
        measured_from=finite(data["measured_from"]),
        measured_until=finite(data["measured_until"]),
        closed_until=str(data.get("closed_until", "")),
        days={str(account): _amounts(days) for account, days in data["days"].items()},
        projects={
            str(name): {str(account): _amounts(days) for account, days in items.items()}
            for name, items in data.get("projects", {}).items()
        },
        nobody=_amounts(data["nobody"]),
        last_account={str(key): str(name) for key, name in data["last_account"].items()},
        last_project={str(key): str(name) for key, name in data.get("last_project", {}).items()},
        unclaimed=_amounts(data["unclaimed"]),
        standings={str(name): Standing(**item) for name, item in data["standings"].items()},
        overrides={str(name): _override(item) for name, item in data["overrides"].items()},
        limited=frozenset(map(str, data["limited"])),
        held={str(name): Saved(**item) for name, item in data["held"].items()},
        refused=frozenset(map(str, data["refused"])),
        denied={str(name): frozenset(items) for name, items in data["denied"].items()},
        held_jobs=frozenset(map(int, data.get("held_jobs", ()))),
        notes={int(key): str(text) for key, text in data["notes"].items()},
    )


def _override(item: Mapping[str, Any]) -> Override:
    return Override(**{**item, "usd": None if item["usd"] is None else Decimal(item["usd"])})


def _amounts(item: Mapping[str, Any]) -> dict[str, Decimal]:
    amounts = {str(key): Decimal(value) for key, value in item.items()}
    if not all(value.is_finite() for value in amounts.values()):
        raise ValueError("expected US dollars")
    return amounts
