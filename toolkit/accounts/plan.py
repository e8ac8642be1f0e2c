"""Computes the difference of two account trees as sacctmgr calls, in an order that works. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounts.model import OWNER, ROOT, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.accounts.model import Account, AccountTree, Association


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
    removals = tuple(_removals(target, current, cluster)) if prune else ()
    removed = {change.description for change in removals}
    return Plan(
        changes=(
            *_account_changes(target, current, cluster),
            *_association_changes(target, current, cluster),
            *_default_changes(target, current, cluster),
            *removals,
        ),
        left_alone=tuple(text for text in undeclared if text not in removed),
    )


def _argv(*words: str) -> tuple[str, ...]:
    return ("sacctmgr", "-i", *words)


def _account_changes(target: AccountTree, current: AccountTree, cluster: str) -> Iterator[Change]:
    own_cluster = f"cluster={cluster}"
    for account in _parents_first(target.accounts):
        existing = current.accounts.get(account.name)
        parent, share = f"parent={account.parent}", f"fairshare={account.fairshare}"
        if existing is None:
            owner = (f"organization={OWNER}", f"description={OWNER}")
            yield Change(
                "add",
                f"account {account.name} under {account.parent}, fairshare {account.fairshare}",
                _argv("add", "account", account.name, own_cluster, parent, share, *owner),
            )
            continue
        differences, settings = [], [share]
        if account.fairshare != existing.fairshare:
            differences.append(f"fairshare {existing.fairshare} → {account.fairshare}")
        if account.parent != existing.parent:
            differences.append(f"parent {existing.parent} → {account.parent}")
            settings = [parent, share]
        if differences:
            conditions = ("where", f"name={account.name}", own_cluster)
            yield Change(
                "change",
                f"account {account.name}: {', '.join(differences)}",
                _argv("modify", "account", *conditions, "set", *settings),
            )


def _association_changes(
    target: AccountTree, current: AccountTree, cluster: str
) -> Iterator[Change]:
    users = {association.user for association in current.associations}
    users |= set(current.default_accounts)

    def order(association: Association) -> tuple[str, bool, str]:
        # The first association of a new user becomes the default account.
        default = target.default_accounts.get(association.user)
        return association.user, default != association.account, association.account

    for association in sorted(target.associations - current.associations, key=order):
        settings = [f"account={association.account}", f"cluster={cluster}"]
        if association.user not in users:
            settings.append(f"defaultaccount={association.account}")
        users.add(association.user)
        yield Change(
            "add",
            f"user {association.user} to account {association.account}",
            _argv("add", "user", association.user, *settings),
        )


def _default_changes(target: AccountTree, current: AccountTree, cluster: str) -> Iterator[Change]:
    for user, account in sorted(target.default_accounts.items()):
        current_account = current.default_accounts.get(user)
        if current_account is None or current_account == account:
            continue
        conditions = ("where", f"name={user}", f"cluster={cluster}")
        yield Change(
            "change",
            f"user {user}: default account {current_account} → {account}",
            _argv("modify", "user", *conditions, "set", f"defaultaccount={account}"),
        )


def _undeclared(target: AccountTree, current: AccountTree) -> Iterator[str]:
    for account in reversed(_parents_first(current.accounts)):
        if account.name not in target.accounts:
            yield _account_text(account)
    for association in sorted(current.associations - target.associations):
        if association.account != ROOT:
            yield _association_text(association)


def _removals(target: AccountTree, current: AccountTree, cluster: str) -> Iterator[Change]:
    """Yield the removals: users before accounts, children before parents."""
    own_cluster = f"cluster={cluster}"
    for association in sorted(current.associations - target.associations):
        account = current.accounts.get(association.account)
        if account is not None and account.owned:
            conditions = (f"name={association.user}", f"account={account.name}", own_cluster)
            argv = _argv("delete", "user", *conditions)
            yield Change("remove", _association_text(association), argv)
    for account in reversed(_parents_first(current.accounts)):
        if account.name not in target.accounts and account.owned:
            argv = _argv("delete", "account", f"name={account.name}", own_cluster)
            yield Change("remove", _account_text(account), argv)


def _account_text(account: Account) -> str:
    return f"account {account.name}"


def _association_text(association: Association) -> str:
    return f"user {association.user} in account {association.account}"


def _parents_first(accounts: Mapping[str, Account]) -> list[Account]:
    """Return every account after its parent.

    Accounts in a circle, which Slurm refuses, come last.
    """
    in_order: list[Account] = []
    rest = sorted(accounts.values(), key=lambda account: account.name)
    while rest:
        names = {account.name for account in rest}
        next_accounts = [account for account in rest if account.parent not in names] or rest
        in_order += next_accounts
        rest = [account for account in rest if account not in next_accounts]
    return in_order
