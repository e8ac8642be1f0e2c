"""The accounts and users that cluster.yaml declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts.model import ROOT, Account, Book, Membership

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig


def wanted(config: ClusterConfig) -> Book:
    """Return the declared accounts and memberships.

    Each user is in the default account, and in the accounts whose `users` names them.
    """
    accounts = {
        account.name: Account(account.name, account.parent, account.fairshare, owned=True)
        for account in config.accounts
        if account.name != ROOT
    }
    members = {Membership(user.account, user.name) for user in config.users}
    members |= {
        Membership(account.name, user) for account in config.accounts for user in account.users
    }
    return Book(
        accounts=accounts,
        memberships=frozenset(members),
        defaults={user.name: user.account for user in config.users},
    )
