"""Computes the difference of two account trees as sacctmgr calls, in an order that works. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounts.model import OWNER, ROOT, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.accounts.model import Account, AccountTree, Association

_SACCTMGR = ("sacctmgr", "-i")


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to make, and the undeclared accounts and members that stay."""

    changes: tuple[Change, ...]
    left_alone: tuple[str, ...]


def plan(target: AccountTree, current: AccountTree, cluster: str, *, prune: bool = False) -> Plan:
    """Plan the changes that make `current` hold all of `target`.

    Declared accounts and members are added and changed. Undeclared ones are named in
    `left_alone`. Only with `prune` are they removed: accounts that the toolkit made,
    and users within such accounts. root, its users and everything that an admin made
    are never removed.
    """
    undeclared = tuple(_undeclared(target, current))
    removals = _removals(target, current, cluster) if prune else ()
    removed_names = {change.description for change in removals}
    return Plan(
        changes=(
            *_account_changes(target, current, cluster),
            *_association_changes(target, current, cluster),
            *_default_changes(target, current, cluster),
            *removals,
        ),
        left_alone=tuple(
            description for description in undeclared if description not in removed_names
        ),
    )


def _account_changes(target: AccountTree, current: AccountTree, cluster: str) -> Iterator[Change]:
    for account in _parents_first(target.accounts):
        existing = current.accounts.get(account.name)
        settings = (f"parent={account.parent}", f"fairshare={account.fairshare}")
        if existing is None:
            ownership = (f"organization={OWNER}", f"description={OWNER}")
            yield Change(
                "add",
                f"account {account.name} under {account.parent}, fairshare {account.fairshare}",
                (
                    *_SACCTMGR,
                    "add",
                    "account",
                    account.name,
                    f"cluster={cluster}",
                    *settings,
                    *ownership,
                ),
            )
            continue
        new_parent = account.parent != existing.parent
        differences = [f"fairshare {existing.fairshare} → {account.fairshare}"]
        differences = differences if account.fairshare != existing.fairshare else []
        differences += [f"parent {existing.parent} → {account.parent}"] if new_parent else []
        if differences:
            conditions = ("where", f"name={account.name}", f"cluster={cluster}")
            new_settings = settings if new_parent else settings[1:]
            yield Change(
                "change",
                f"account {account.name}: {', '.join(differences)}",
                (*_SACCTMGR, "modify", "account", *conditions, "set", *new_settings),
            )


def _association_changes(
    target: AccountTree, current: AccountTree, cluster: str
) -> Iterator[Change]:
    known_users = {association.user for association in current.associations} | set(
        current.default_accounts
    )
    # The first membership of a new user becomes the default account.
    new_associations = sorted(
        target.associations - current.associations,
        key=lambda association: (
            association.user,
            target.default_accounts.get(association.user) != association.account,
            association.account,
        ),
    )
    for association in new_associations:
        default_setting = (
            (f"defaultaccount={association.account}",)
            if association.user not in known_users
            else ()
        )
        known_users.add(association.user)
        account_setting = (f"account={association.account}", f"cluster={cluster}")
        argv = (*_SACCTMGR, "add", "user", association.user, *account_setting, *default_setting)
        yield Change("add", f"user {association.user} to account {association.account}", argv)


def _default_changes(target: AccountTree, current: AccountTree, cluster: str) -> Iterator[Change]:
    for user, account in sorted(target.default_accounts.items()):
        current_account = current.default_accounts.get(user)
        if current_account is None or current_account == account:
            continue
        conditions = ("where", f"name={user}", f"cluster={cluster}")
        yield Change(
            "change",
            f"user {user}: default account {current_account} → {account}",
            (*_SACCTMGR, "modify", "user", *conditions, "set", f"defaultaccount={account}"),
        )


def _undeclared(target: AccountTree, current: AccountTree) -> Iterator[str]:
    for account in reversed(_parents_first(current.accounts)):
        if account.name not in target.accounts:
            yield _account_text(account)
    for association in sorted(current.associations - target.associations):
        if association.account != ROOT:
            yield _association_text(association)


def _removals(target: AccountTree, current: AccountTree, cluster: str) -> tuple[Change, ...]:
    """Return the removals: users before accounts, children before parents."""
    cluster_setting = f"cluster={cluster}"
    users = [
        Change(
            "remove",
            _association_text(association),
            (
                *_SACCTMGR,
                "delete",
                "user",
                f"name={association.user}",
                f"account={association.account}",
                cluster_setting,
            ),
        )
        for association in sorted(current.associations - target.associations)
        if _is_owned(current, association.account)
    ]
    accounts = [
        Change(
            "remove",
            _account_text(account),
            (*_SACCTMGR, "delete", "account", f"name={account.name}", cluster_setting),
        )
        for account in reversed(_parents_first(current.accounts))
        if account.name not in target.accounts and account.owned
    ]
    return (*users, *accounts)


def _is_owned(current: AccountTree, account: str) -> bool:
    return account in current.accounts and current.accounts[account].owned


def _account_text(account: Account) -> str:
    return f"account {account.name}"


def _association_text(association: Association) -> str:
    return f"user {association.user} in account {association.account}"


def _parents_first(accounts: Mapping[str, Account]) -> list[Account]:
    """Return every account after its parent.

    Accounts in a circle, which Slurm refuses, come last.
    """
    accounts_in_order: list[Account] = []
    remaining = sorted(accounts.values(), key=lambda account: account.name)
    while remaining:
        remaining_names = {account.name for account in remaining}
        next_accounts = [
            account for account in remaining if account.parent not in remaining_names
        ] or remaining
        accounts_in_order += next_accounts
        remaining = [account for account in remaining if account not in next_accounts]
    return accounts_in_order
