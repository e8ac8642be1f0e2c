"""Limits and shares of accounts and users: cluster.yaml against slurmdbd.

A limit is the toolkit's if a mark has it with the value that slurmdbd has. So one that an admin set
or changed by hand is changed only where cluster.yaml names it, and never taken back. Each TRES
counts by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.accounts import forms
from toolkit.accounts.associations import FAIRSHARE, SETTINGS, Existing
from toolkit.accounts.marks import LEFT, MADE, SET, Marks
from toolkit.accounts.model import Association, Change
from toolkit.accounts.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.config.model import Account, User

_SUBMIT: Final = "GrpSubmitJobs"
_USER_SUBMIT: Final = "MaxSubmitJobs"
_NO_VALUE: Final = {FAIRSHARE: "1"}
_NAMES: Final = {name.lower(): name for name in SETTINGS}


@dataclass(frozen=True, slots=True)
class _Difference:
    """The changes of one association."""

    values: Mapping[str, str | None]
    """The settings to write. None: the setting is taken back."""
    marks: Marks
    """Its marks afterwards."""
    held: frozenset[str]
    """Settings that something else of the toolkit holds at the moment."""


def declared_limits(config: ClusterConfig) -> dict[Association, dict[str, str]]:
    """Return the limits of each account and each user's association in cluster.yaml."""
    target = {Association(item.name, ""): _account_limits(item) for item in config.accounts}
    users = {item.name: _user_limits(item) for item in config.users}
    for item in config.users:
        target[Association(item.account, item.name)] = users[item.name]
    for account in config.accounts:
        for name in account.users:
            target[Association(account.name, name)] = users[name]
    return target


def plan_limits(
    target: Mapping[Association, Mapping[str, str]],
    existing: Mapping[Association, Existing],
    cluster: str,
    *,
    budgeted: frozenset[str] = frozenset(),
    adopt: bool = False,
) -> Plan:
    """Plan the limits and shares of accounts and users.

    They follow the changes that add these. Accounts with a budget are `budgeted`. With `adopt`,
    users whom an admin put into these accounts count as put there by the toolkit.
    """
    changes, notes = [], []
    for key, wanted in target.items():
        item = existing.get(key) or Existing(Marks().marked(MADE) if key.user else Marks())
        difference = _difference(key, wanted, item, budgeted)
        is_adopted = adopt and bool(key.user) and item.marks.value(MADE) is None
        if _SUBMIT in difference.held and wanted.get(_SUBMIT) not in (None, "0"):
            notes.append(f"{_who(key)}: {_SUBMIT} is 0 while its budget refuses jobs, and stays")
        if not (difference.values or is_adopted):
            continue
        if reason := _obstacle(item):
            notes.append(f"{_who(key)}: not changed, because {reason}")
            continue
        changes.append(_change(key, item, difference, cluster, is_adopted=is_adopted))
    return Plan(tuple(changes), (), tuple(notes))


def _difference(
    key: Association, wanted: Mapping[str, str], item: Existing, budgeted: frozenset[str]
) -> _Difference:
    written = _written(item.marks)
    ours = {name for name, value in written.items() if _value(item, name) == value}
    held = set()
    if key.user and item.marks.value(LEFT) is not None:
        held = {_USER_SUBMIT}
    elif not key.user and key.account in budgeted and item.settings.get(_SUBMIT) == "0":
        held = {_SUBMIT}
    values: dict[str, str | None] = {
        name: value
        for name, value in wanted.items()
        if name not in held and _value(item, name) != value
    }
    own = {name: wanted[name] for name in wanted if name in values or name in ours}
    own |= {name: written[name] for name in held & written.keys()}
    values |= {
        name: None
        for name in written
        if name in ours - wanted.keys() - held and _value(item, name) != _NO_VALUE.get(name)
    }
    text = ",".join(f"{name.lower()}={own[name]}" for name in _in_order(own))
    marks = item.marks.marked(SET, text) if own else item.marks.unmarked(SET)
    return _Difference(values, marks, frozenset(held))


def _obstacle(item: Existing) -> str:
    """Return why sacctmgr can't change this association without changing more."""
    if item.has_partitions:
        return "the user has associations of single partitions in it, which an admin made"
    if not item.marks.writable:
        return "sacctmgr would change the admin's comment on it"
    return ""


def _change(
    key: Association, item: Existing, difference: _Difference, cluster: str, *, is_adopted: bool
) -> Change:
    marks = difference.marks.marked(MADE) if is_adopted else difference.marks
    names = _in_order(difference.values)
    parts = ["adopted"] if is_adopted else []
    parts += [
        f"{name} {_value(item, name) or 'none'} → {_new(difference, name) or 'none'}"
        for name in names
    ]
    where = [f"name={key.user or key.account}", f"cluster={cluster}"]
    if key.user:
        where.insert(1, f"account={key.account}")
    kind = "user" if key.user else "account"
    words = (*_words(difference, names), f"comment={marks.text}")
    return Change(
        "change",
        f"{_who(key)}: {', '.join(parts)}",
        ("sacctmgr", "-i", "modify", kind, "where", *where, "set", *words),
    )


def _words(difference: _Difference, names: list[str]) -> Iterator[str]:
    """Yield the words for sacctmgr.

    -1 clears a limit, and each TRES by itself.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        setting, _, tres = name.partition("=")
        value = _new(difference, name) or "-1"
        groups.setdefault(setting, []).append(f"{tres}={value}" if tres else value)
    return (f"{setting}={','.join(values)}" for setting, values in groups.items())


def _new(difference: _Difference, name: str) -> str | None:
    return difference.values[name] or _NO_VALUE.get(name)


def _value(item: Existing, name: str) -> str | None:
    return item.settings.get(name, _NO_VALUE.get(name))


def _written(marks: Marks) -> dict[str, str]:
    """Return the limits that the toolkit set, with their values then."""
    found = {}
    for word in (marks.value(SET) or "").split(","):
        name, _, value = word.rpartition("=")
        setting, equals, tres = name.partition("=")
        if setting in _NAMES:
            found[f"{_NAMES[setting]}{equals}{tres}"] = value
    return found


def _in_order(names: Mapping[str, object]) -> list[str]:
    return sorted(names, key=lambda name: (SETTINGS.index(name.partition("=")[0]), name))


def _who(key: Association) -> str:
    return f"user {key.user} in account {key.account}" if key.user else f"account {key.account}"


def _account_limits(account: Account) -> dict[str, str]:
    limits = account.limits
    return _limits(
        {
            "GrpJobs": limits.total.jobs,
            _SUBMIT: limits.total.submit,
            "MaxJobs": limits.per_user.jobs,
            _USER_SUBMIT: limits.per_user.submit,
        },
        {"GrpTRES": limits.total.tres, "MaxTRES": limits.per_job},
        limits.max_time,
    )


def _user_limits(user: User) -> dict[str, str]:
    limits = user.limits
    return _limits(
        {FAIRSHARE: user.fairshare, "MaxJobs": limits.jobs, _USER_SUBMIT: limits.submit},
        {"GrpTRES": limits.tres, "MaxTRES": limits.per_job},
        limits.max_time,
    )


def _limits(
    counts: Mapping[str, int | None],
    tres: Mapping[str, Mapping[str, int]],
    max_time: str | None,
) -> dict[str, str]:
    values = {name: str(count) for name, count in counts.items() if count is not None}
    for setting, amounts in tres.items():
        values |= {f"{setting}={name}": str(amount) for name, amount in amounts.items()}
    if max_time is not None:
        values["MaxWall"] = forms.clock(forms.whole_minutes(forms.seconds(max_time)))
    return values
