"""Computes the difference of two account trees as sacctmgr calls, in an order that works. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounts.marks import MADE, Marks
from toolkit.accounts.model import OWNER, ROOT, Change
from toolkit.config import types
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.accounts.model import Account, AccountTree, Association


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes to make, and what is not in cluster.yaml and stays."""

    changes: tuple[Change, ...]
    left_alone: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What is in cluster.yaml and is not changed, with the reason."""


class AccountTakenError(ToolkitError):
    """An account of cluster.yaml was made by somebody else."""

    reason = "account-taken"


def plan(
    target: AccountTree,
    current: AccountTree,
    cluster: str,
    *,
    prune: bool = False,
    adopt: bool = False,
) -> Plan:
    """Plan the changes that make `current` hold all of `target`.

    Declared accounts and associations are added and changed. Undeclared ones are named in
    `left_alone`. Only with `prune` are they removed, and only those that the toolkit made. root
    and its users are never removed. Raises AccountTakenError if somebody else made a declared
    account, unless `adopt` is given: it is the toolkit's from then on.
    """
    taken = sorted(current.taken & target.accounts.keys())
    if taken and not adopt:
        verb = "was" if len(taken) == 1 else "were"
        raise AccountTakenError(
            f"account {', '.join(taken)} {verb} not made by the toolkit, so it is not changed",
            next_step="give it another name in cluster.yaml, or let the toolkit have it:"
            " `toolkit accounts apply --adopt`",
        )
    members, accounts = _removable(target, current) if prune else (frozenset(), frozenset())
    return Plan(
        changes=(
            *map(_adoption, taken),
            *_account_changes(target, current, cluster),
            *_association_changes(target, current, cluster),
            *_default_changes(target, current, cluster),
            *_removals(members, accounts, current, cluster),
        ),
        left_alone=(
            *_accounts_left(target, current, accounts, prune=prune),
            *_members_left(target, current, members, prune=prune),
        ),
    )


def _argv(*words: str) -> tuple[str, ...]:
    return ("sacctmgr", "-i", *words)


def _adoption(name: str) -> Change:
    """Return the change that makes an account ours, on all clusters."""
    argv = _argv("modify", "account", "where", f"name={name}", "set", f"organization={OWNER}")
    return Change("change", f"account {name}: adopted", argv)


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
        settings.append(f"comment={Marks().marked(MADE).text}")
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


def _removable(
    target: AccountTree, current: AccountTree
) -> tuple[frozenset[Association], frozenset[str]]:
    """Return the users' associations to remove, and the accounts.

    slurmdbd removes an account with all that is below it. So one stays that has something of an
    admin's below it.
    """
    ours = frozenset(
        item
        for item in current.associations & current.made - target.associations
        if item.account in current.accounts
        and current.accounts[item.account].owned
        and re.fullmatch(types.USER_NAME, item.user)
    )
    stay = {item.user for item in current.associations - ours}
    defaults = {**current.default_accounts, **target.default_accounts}
    members = frozenset(
        # sacctmgr refuses to remove a default account beside others.
        item
        for item in ours
        if not (item.user in stay and defaults.get(item.user) == item.account)
    )
    parents = {item.account for item in current.associations - members}
    accounts: set[str] = set()
    for account in reversed(_parents_first(current.accounts)):
        name, is_declared = account.name, account.name in target.accounts
        is_ours = account.owned and re.fullmatch(types.NAME_UNDERSCORE, name)
        if not is_declared and is_ours and name not in parents:
            accounts.add(name)
        else:
            parents.add((target.accounts if is_declared else current.accounts)[name].parent)
    return members, frozenset(accounts)


def _removals(
    members: frozenset[Association],
    accounts: frozenset[str],
    current: AccountTree,
    cluster: str,
) -> Iterator[Change]:
    """Yield the removals: users before accounts, default accounts last, children first."""
    own_cluster = f"cluster={cluster}"

    def order(item: Association) -> tuple[str, bool, str]:
        is_default = current.default_accounts.get(item.user) == item.account
        return item.user, is_default, item.account

    for item in sorted(members, key=order):
        argv = _argv("delete", "user", f"name={item.user}", f"account={item.account}", own_cluster)
        yield Change("remove", _association_text(item), argv)
    for account in reversed(_parents_first(current.accounts)):
        if account.name in accounts:
            argv = _argv("delete", "account", f"name={account.name}", own_cluster)
            yield Change("remove", _account_text(account), argv)


def _accounts_left(
    target: AccountTree, current: AccountTree, removed: frozenset[str], *, prune: bool
) -> Iterator[str]:
    """Yield the accounts that are not in cluster.yaml, and stay."""
    for account in reversed(_parents_first(current.accounts)):
        if account.name in target.accounts or account.name in removed:
            continue
        reason = ""
        if not account.owned:
            reason = ", not made by the toolkit"
        elif prune:
            reason = ", with users or accounts below it that stay"
        yield f"{_account_text(account)}{reason}"


def _members_left(
    target: AccountTree,
    current: AccountTree,
    removed: frozenset[Association],
    *,
    prune: bool,
) -> Iterator[str]:
    """Yield the users' associations that are not in cluster.yaml, and stay."""
    for association in sorted(current.associations - target.associations - removed):
        if association.account != ROOT:
            reason = ""
            if association in current.partitioned:
                reason = ", with associations of single partitions, which an admin made"
            elif association not in current.made:
                reason = ", not made by the toolkit"
            elif prune:
                account = current.accounts.get(association.account)
                is_owned = account is not None and account.owned
                reason = ", as the user's default account" if is_owned else ", in another's account"
            yield f"{_association_text(association)}{reason}"


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
