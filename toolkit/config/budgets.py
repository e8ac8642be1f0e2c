"""The section of cluster.yaml on budgets: what accounts and projects may cost, and what then.

The section's key is the budget's own name, which commands and messages use.
"""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit.config.money import Moment, UsdTotal, parse_moment
from toolkit.config.raw import Finding, KeyPath, items, mapping
from toolkit.config.section import Section
from toolkit.config.suggestions import suggestion
from toolkit.config.types import AccountName, Label

HIGHEST_PERCENT = 200


class BudgetStepSection(Section):
    """A share of the amount, and what is done from there on, until the period ends."""

    at: Annotated[int, Field(ge=1, le=HIGHEST_PERCENT)]
    """Percent of the amount that is spent."""
    do: Literal["warn", "spot-only", "hold", "requeue", "refuse"]
    """`warn`: the audit log and `notify`. `spot-only`: no new job where instances may be bought on
    demand. `hold`: no waiting job starts. `requeue`: running batch jobs stop and wait, too.
    `refuse`: sbatch refuses new jobs, too.
    """


DEFAULT_STEPS = (
    BudgetStepSection(at=50, do="warn"),
    BudgetStepSection(at=80, do="warn"),
    BudgetStepSection(at=90, do="warn"),
    BudgetStepSection(at=100, do="hold"),
)


class BudgetSection(Section):
    """The most that accounts and projects may cost together in a period."""

    account: AccountName | Annotated[tuple[AccountName, ...], Field(min_length=1)] | None = None
    """An account, or a list of them, each with all accounts below it."""
    project: Label | Annotated[tuple[Label, ...], Field(min_length=1)] | None = None
    """A project, or a list of them: the jobs of `sbatch --wckey`, and those of accounts with that
    `project`.
    """
    usd: UsdTotal
    """US dollars in each period."""
    period: Literal["month", "quarter", "year", "grant"] = "month"
    """Of the calendar, in UTC. `grant`: once, from `since` to `until`."""
    since: Moment | None = None
    """The grant's first day."""
    until: Moment | None = None
    """The first day after the grant. From it on, the grant's last step holds."""
    steps: Annotated[tuple[BudgetStepSection, ...], Field(min_length=1, max_length=20)] = (
        DEFAULT_STEPS
    )
    notify: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=20)
    ] = ()
    """The argv of a program on the head, such as one that sends mail. It runs as slurm, and gets
    each step that is reached as JSON on standard input.
    """

    @property
    def accounts(self) -> tuple[str, ...]:
        return _names(self.account)

    @property
    def projects(self) -> tuple[str, ...]:
        """Return the projects in small letters, as slurmdbd keeps them."""
        return tuple(dict.fromkeys(name.lower() for name in _names(self.project)))


def budget_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield unknown accounts, periods that can't be, and budgets that overlap."""
    known = {str(row.get("name")) for row in items(raw, "accounts") if isinstance(row, dict)}
    earlier: list[tuple[str, Any]] = []
    for name, section in mapping(raw, "budgets").items():
        path: KeyPath = ("budgets", name)
        accounts, projects = _raw_names(section, "account"), _raw_names(section, "project")
        if not accounts and not projects and isinstance(section, dict):
            yield path, "expected account or project: whom the amount is for"
        for account in accounts:
            if account not in known:
                yield (*path, "account"), f"unknown account '{account}'{suggestion(account, known)}"
        yield from _period(path, section)
        yield from _steps(path, section, raw)
        for other, other_section in earlier:
            for key in ("account", "project"):
                both = _raw_names(section, key) & _raw_names(other_section, key)
                if both and _overlap(section, other_section):
                    text = (
                        f"budget {other} is for the same {key} and time: {', '.join(sorted(both))}"
                    )
                    yield (*path, key), text
        earlier.append((name, section))


def dated_findings(raw: Mapping[str, Any], now: datetime) -> Iterator[Finding]:
    """Yield grants that ended, and grants that have not begun."""
    for name, section in mapping(raw, "budgets").items():
        since, until = _moment(section, "since"), _moment(section, "until")
        if until is not None and until <= now:
            text = f"the grant ended on {until:%Y-%m-%d} and pays no job: its last step holds"
            yield ("budgets", name, "until"), f"{text}; renew it, or remove the budget"
        elif since is not None and since > now:
            yield (
                ("budgets", name, "since"),
                f"the grant begins on {since:%Y-%m-%d}, in the future: until then no limit holds",
            )


def _period(path: KeyPath, section: Any) -> Iterator[Finding]:
    is_grant = isinstance(section, dict) and section.get("period") == "grant"
    since, until = _moment(section, "since"), _moment(section, "until")
    for key in ("since", "until"):
        has_key = isinstance(section, dict) and key in section
        if is_grant and not has_key:
            yield (*path, "period"), f"expected {key}: the days of the grant"
        elif has_key and not is_grant:
            yield (*path, key), "only with period: grant"
        moment = since if key == "since" else until
        if moment is not None and (moment.hour, moment.minute, moment.second) != (0, 0, 0):
            yield (*path, key), "expected a day: spending is known by days in UTC"
    if is_grant and since is not None and until is not None and until <= since:
        yield (*path, "until"), f"expected a day after {since:%Y-%m-%d}"


def _steps(path: KeyPath, section: Any, raw: Mapping[str, Any]) -> Iterator[Finding]:
    last = 0
    for index, step in enumerate(items(section, "steps")):
        at = step.get("at") if isinstance(step, dict) else None
        if isinstance(at, int) and not isinstance(at, bool):
            if at <= last:
                yield (*path, "steps", index, "at"), f"expected more than {last}, the step before"
            last = max(last, at)
        is_spot_only = isinstance(step, dict) and step.get("do") == "spot-only"
        if is_spot_only and not set(mapping(raw, "partitions")) - set(on_demand_partitions(raw)):
            text = "no partition buys spot alone: policy spot-only, or offerings of spot alone"
            yield (*path, "steps", index, "do"), text


def on_demand_partitions(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the partitions whose jobs may get an instance on demand."""
    pools = mapping(raw, "pools")
    return tuple(
        str(name)
        for name, partition in mapping(raw, "partitions").items()
        if isinstance(partition, dict)
        and partition.get("policy") != "spot-only"
        and any(
            isinstance(offering, dict) and offering.get("capacity") != "spot"
            for pool in items(partition, "pools")
            for offering in items(pools.get(pool) if isinstance(pool, str) else None, "offerings")
        )
    )


def _overlap(section: Any, other: Any) -> bool:
    """Return whether both budgets are for one moment.

    A calendar's period is always.
    """
    begins = [_moment(item, "since") for item in (section, other)]
    ends = [_moment(item, "until") for item in (section, other)]
    if None in begins or None in ends:
        return True
    return max(filter(None, begins)) < min(filter(None, ends))


def _names(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()


def _raw_names(section: Any, key: str) -> set[str]:
    value = section.get(key) if isinstance(section, dict) else None
    names = value if isinstance(value, list) else [value]
    found = {name for name in names if isinstance(name, str)}
    return found if key == "account" else {name.lower() for name in found}


def _moment(section: Any, key: str) -> datetime | None:
    value = section.get(key) if isinstance(section, dict) else None
    try:
        return None if value is None else parse_moment(str(value)).astimezone(UTC)
    except ValueError:
        return None  # the model reports it
