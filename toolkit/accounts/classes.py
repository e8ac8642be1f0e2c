"""Workload classes as QOS in slurmdbd: cluster.yaml against what is there.

A QOS is the toolkit's if its description says so. Others are never changed: a class of the same
name is refused. A QOS belongs to slurmdbd as a whole, the right to use it to an account.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from toolkit.accounts import forms
from toolkit.accounts.model import OWNER, ROOT, Change
from toolkit.accounts.plan import Plan
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config import ClusterConfig
    from toolkit.config.classes import WorkloadClass
    from toolkit.head_runner import Runner

PRIORITY: Final = "Priority"
GRACE: Final = "GraceTime"
PREEMPT: Final = "Preempt"
_TIMES: Final = frozenset({GRACE, "MaxWall"})
_TRES: Final = frozenset({"GrpTRES", "MaxTRES", "MaxTRESPU", "MaxTRESPA"})
SETTINGS: Final = (
    *(PRIORITY, GRACE, PREEMPT, "MaxWall", "GrpTRES", "GrpJobs", "GrpSubmit", "MaxTRES"),
    *("MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPA", "MaxJobsPA", "MaxSubmitPA"),
)
"""The settings of a QOS that a class has, by the names of sacctmgr's columns."""
_WRITTEN: Final = {"GrpSubmit": "GrpSubmitJobs", "MaxSubmitPU": "MaxSubmitJobsPU"} | {
    "MaxSubmitPA": "MaxSubmitJobsPA"
}
_QOS: Final = ("Name", *SETTINGS, "Description")
_ACCESS: Final = ("Account", "User", "Partition", "QOS")
_NO_VALUE: Final = {PRIORITY: "0", GRACE: "0"}


class ClassTakenError(ToolkitError):
    """A QOS that somebody else made has the name of a class."""

    reason = "class-taken"


@dataclass(frozen=True, slots=True)
class Qos:
    """A QOS. Its settings are text in one form; those without a value are left out."""

    name: str
    owned: bool
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClassTree:
    """All QOS, and which of them each account and each of its users may use."""

    qos: Mapping[str, Qos] = field(default_factory=dict)
    access: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By account and user; the user is empty for the account itself."""


def declared_classes(config: ClusterConfig) -> ClassTree:
    """Return the classes of cluster.yaml, and the accounts that may use them."""
    return ClassTree(
        qos={name: Qos(name, True, _settings(item)) for name, item in config.classes.items()},
        access={
            (account.name, ""): frozenset(
                name
                for name, item in config.classes.items()
                if not item.accounts or account.name in item.accounts
            )
            for account in config.accounts
            if account.name != ROOT
        },
    )


def read_classes(runner: Runner, cluster: str) -> ClassTree:
    """Return slurmdbd's QOS, and which of them the cluster's accounts may use."""
    show = ("sacctmgr", "-n", "-P", "show")
    rows = runner.run([*show, "qos", f"format={','.join(_QOS)}"])
    access = runner.run([*show, "assoc", f"cluster={cluster}", f"format={','.join(_ACCESS)}"])
    return parse_classes(rows, access)


def parse_classes(rows: str, access: str) -> ClassTree:
    """Parse the two answers."""
    qos = {}
    for name, *values, description in forms.rows(rows, _QOS):
        settings = {
            setting: text
            for setting, value in zip(SETTINGS, values, strict=True)
            if (text := _canonical(setting, value))
        }
        qos[name] = Qos(name, description == OWNER, settings)
    return ClassTree(
        qos,
        {
            (account, user): frozenset(filter(None, names.split(",")))
            for account, user, partition, names in forms.rows(access, _ACCESS)
            if not partition
        },
    )


def plan_classes(
    target: ClassTree, current: ClassTree, cluster: str, *, prune: bool = False
) -> Plan:
    """Plan the changes that make slurmdbd hold the classes.

    They follow those of the accounts.
    Only with `prune` are QOS of the toolkit removed that cluster.yaml no longer has, and rights to
    its classes taken back. Raises ClassTakenError.
    """
    taken = sorted(
        name for name in target.qos if name in current.qos and not current.qos[name].owned
    )
    if taken:
        raise ClassTakenError(
            f"QOS {', '.join(taken)} was not made by the toolkit, so it is not changed",
            next_step="give the class another name, or hand the QOS over:"
            f" `sacctmgr modify qos {taken[0]} set description={OWNER}`",
        )
    undeclared = [
        item.name for item in current.qos.values() if item.owned and item.name not in target.qos
    ]
    removals = (
        Change("remove", f"class {name}", _argv("delete", "qos", f"name={name}"))
        for name in sorted(undeclared)
        if prune
    )
    return Plan(
        changes=(
            *_qos_changes(target, current),
            *_access_changes(target, current, cluster, prune=prune),
            *removals,
        ),
        left_alone=() if prune else tuple(f"class {name}" for name in sorted(undeclared)),
    )


def _argv(*words: str) -> tuple[str, ...]:
    return ("sacctmgr", "-i", *words)


def _qos_changes(target: ClassTree, current: ClassTree) -> Iterator[Change]:
    """Yield new QOS before changes: one that preempts names others."""
    for item in target.qos.values():
        if item.name not in current.qos:
            words = (f"name={item.name}", f"description={OWNER}")
            yield Change("add", f"class {item.name}", _argv("add", "qos", *words))
    for item in target.qos.values():
        known = current.qos.get(item.name)
        old = known.settings if known is not None else {}
        changed = [name for name in SETTINGS if item.settings.get(name) != old.get(name)]
        if changed:
            settings = [
                _assignment(name, item.settings.get(name), old.get(name)) for name in changed
            ]
            description = ", ".join(
                f"{name} {old.get(name, 'none')} → {item.settings.get(name, 'none')}"
                for name in changed
            )
            yield Change(
                "change",
                f"class {item.name}: {description}",
                _argv("modify", "qos", "where", f"name={item.name}", "set", *settings),
            )


def _access_changes(
    target: ClassTree, current: ClassTree, cluster: str, *, prune: bool
) -> Iterator[Change]:
    """Yield the rights that accounts, and users with own lists, lack."""
    for (account, _), names in target.access.items():
        before = current.access.get((account, ""), frozenset())
        users = sorted(
            user
            for (other, user), own in current.access.items()
            if other == account and user and own != before
        )
        for user in ("", *users):
            has = current.access.get((account, user), frozenset())
            if missing := names - has:
                yield _access_change(cluster, account, user, "+", missing)
            if prune and (surplus := (has & target.qos.keys()) - names):
                yield _access_change(cluster, account, user, "-", surplus)


def _access_change(
    cluster: str, account: str, user: str, sign: str, classes: frozenset[str]
) -> Change:
    words = ",".join(sorted(classes))
    who = f"user {user} in account {account}" if user else f"account {account}"
    conditions = [f"name={user or account}", f"cluster={cluster}"]
    if user:
        conditions.append(f"account={account}")
    kind = "user" if user else "account"
    return Change(
        "change",
        f"{who} {'may use' if sign == '+' else 'may not use'} {words}",
        _argv("modify", kind, "where", *conditions, "set", f"qos{sign}={words}"),
    )


def _settings(item: WorkloadClass) -> dict[str, str]:
    values: dict[str, str] = {
        PRIORITY: str(item.priority),
        GRACE: str(item.grace_seconds),
        PREEMPT: ",".join(sorted(item.preempts)),
        "MaxWall": "" if item.max_time == "infinite" else str(forms.seconds(item.max_time)),
        "GrpTRES": forms.tres_text(item.total.tres),
        "GrpJobs": _count(item.total.jobs),
        "GrpSubmit": _count(item.total.submit),
        "MaxTRES": forms.tres_text(item.per_job),
        "MaxTRESPU": forms.tres_text(item.per_user.tres),
        "MaxJobsPU": _count(item.per_user.jobs),
        "MaxSubmitPU": _count(item.per_user.submit),
        "MaxTRESPA": forms.tres_text(item.per_account.tres),
        "MaxJobsPA": _count(item.per_account.jobs),
        "MaxSubmitPA": _count(item.per_account.submit),
    }
    return {name: value for name, value in values.items() if value not in ("", _NO_VALUE.get(name))}


def _canonical(setting: str, value: str) -> str:
    """Return a value as `_settings` has it; empty for none."""
    if setting in _TIMES and value:
        value = str(forms.seconds(value))
    elif setting in _TRES:
        pairs = (part.split("=", 1) for part in value.split(",") if "=" in part)
        value = forms.tres_text({name: forms.amount(amount) for name, amount in pairs})
    elif setting == PREEMPT:
        value = ",".join(sorted(filter(None, value.split(","))))
    return "" if value == _NO_VALUE.get(setting) else value


def _assignment(setting: str, value: str | None, old: str | None) -> str:
    """Return the word for sacctmgr.

    -1 clears a limit, and each TRES by itself.
    """
    name = _WRITTEN.get(setting, setting)
    if setting in _TRES:
        cleared = {part.split("=")[0]: "-1" for part in (old or "").split(",") if part}
        wanted = dict(part.split("=") for part in (value or "").split(",") if part)
        return f"{name}={','.join(f'{key}={v}' for key, v in {**cleared, **wanted}.items())}"
    if value is None:
        return f"{name}={'' if setting == PREEMPT else _NO_VALUE.get(setting, '-1')}"
    if setting == "MaxWall":
        return f"{name}={forms.clock(int(value))}"
    return f"{name}={value}"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)
