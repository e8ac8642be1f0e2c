"""Computes the difference of two books as sacctmgr calls, in an order that works. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounts.model import OWNER, ROOT, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.accounts.model import Account, Book, Membership

_SACCTMGR = ("sacctmgr", "-i")


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to make, and the undeclared accounts and members that stay."""

    changes: tuple[Change, ...]
    left_alone: tuple[str, ...]


def plan(wanted: Book, current: Book, cluster: str, *, prune: bool = False) -> Plan:
    """Plan the changes that make `current` hold all of `wanted`.

    Declared accounts and members are added and changed. Undeclared ones are named in
    `left_alone`. Only with `prune` are they removed: accounts that the toolkit made,
    and users within such accounts. root, its users and everything that an admin made
    are never removed.
    """
    extra = tuple(_undeclared(wanted, current))
    removals = _removals(wanted, current, cluster) if prune else ()
    removed = {change.what for change in removals}
    return Plan(
        changes=(
            *_account_changes(wanted, current, cluster),
            *_membership_changes(wanted, current, cluster),
            *_default_changes(wanted, current, cluster),
            *removals,
        ),
        left_alone=tuple(what for what in extra if what not in removed),
    )


def _account_changes(wanted: Book, current: Book, cluster: str) -> Iterator[Change]:
    for account in _parents_first(wanted.accounts):
        have = current.accounts.get(account.name)
        sets = (f"parent={account.parent}", f"fairshare={account.fairshare}")
        if have is None:
            made = (f"organization={OWNER}", f"description={OWNER}")
            yield Change(
                "add",
                f"account {account.name} under {account.parent}, fairshare {account.fairshare}",
                (*_SACCTMGR, "add", "account", account.name, f"cluster={cluster}", *sets, *made),
            )
            continue
        moved = account.parent != have.parent
        told = [f"fairshare {have.fairshare} → {account.fairshare}"]
        told = told if account.fairshare != have.fairshare else []
        told += [f"parent {have.parent} → {account.parent}"] if moved else []
        if told:
            where = ("where", f"name={account.name}", f"cluster={cluster}")
            different = sets if moved else sets[1:]
            yield Change(
                "change",
                f"account {account.name}: {', '.join(told)}",
                (*_SACCTMGR, "modify", "account", *where, "set", *different),
            )


def _membership_changes(wanted: Book, current: Book, cluster: str) -> Iterator[Change]:
    known = {one.user for one in current.memberships} | set(current.defaults)
    # The first membership of a new user becomes the default account.
    ordered = sorted(
        wanted.memberships - current.memberships,
        key=lambda one: (one.user, wanted.defaults.get(one.user) != one.account, one.account),
    )
    for one in ordered:
        first = (f"defaultaccount={one.account}",) if one.user not in known else ()
        known.add(one.user)
        place = (f"account={one.account}", f"cluster={cluster}")
        argv = (*_SACCTMGR, "add", "user", one.user, *place, *first)
        yield Change("add", f"user {one.user} to account {one.account}", argv)


def _default_changes(wanted: Book, current: Book, cluster: str) -> Iterator[Change]:
    for user, account in sorted(wanted.defaults.items()):
        have = current.defaults.get(user)
        if have is None or have == account:
            continue
        where = ("where", f"name={user}", f"cluster={cluster}")
        yield Change(
            "change",
            f"user {user}: default account {have} → {account}",
            (*_SACCTMGR, "modify", "user", *where, "set", f"defaultaccount={account}"),
        )


def _undeclared(wanted: Book, current: Book) -> Iterator[str]:
    for account in reversed(_parents_first(current.accounts)):
        if account.name not in wanted.accounts:
            yield _account_words(account)
    for one in sorted(current.memberships - wanted.memberships):
        if one.account != ROOT:
            yield _membership_words(one)


def _removals(wanted: Book, current: Book, cluster: str) -> tuple[Change, ...]:
    """Return the removals: users before accounts, children before parents."""
    place = f"cluster={cluster}"
    users = [
        Change(
            "remove",
            _membership_words(one),
            (*_SACCTMGR, "delete", "user", f"name={one.user}", f"account={one.account}", place),
        )
        for one in sorted(current.memberships - wanted.memberships)
        if _owned(current, one.account)
    ]
    accounts = [
        Change(
            "remove",
            _account_words(account),
            (*_SACCTMGR, "delete", "account", f"name={account.name}", place),
        )
        for account in reversed(_parents_first(current.accounts))
        if account.name not in wanted.accounts and account.owned
    ]
    return (*users, *accounts)


def _owned(current: Book, account: str) -> bool:
    return account in current.accounts and current.accounts[account].owned


def _account_words(account: Account) -> str:
    return f"account {account.name}"


def _membership_words(one: Membership) -> str:
    return f"user {one.user} in account {one.account}"


def _parents_first(accounts: Mapping[str, Account]) -> list[Account]:
    """Return every account after its parent.

    Accounts in a circle, which Slurm refuses, come last.
    """
    ordered: list[Account] = []
    waiting = sorted(accounts.values(), key=lambda account: account.name)
    while waiting:
        unplaced = {account.name for account in waiting}
        ready = [account for account in waiting if account.parent not in unplaced] or waiting
        ordered += ready
        waiting = [account for account in waiting if account not in ready]
    return ordered
