"""The accounts and users that cluster.yaml declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts.model import ROOT, Account, AccountTree, Association

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig


def declared_accounts(config: ClusterConfig) -> AccountTree:
    """Return the declared accounts and memberships.

    Each user is in the default account, and in the accounts whose `users` names them.
    """
    accounts = {
        account.name: Account(account.name, account.parent, account.fairshare, owned=True)
        for account in config.accounts
        if account.name != ROOT
    }
    associations = {Association(user.account, user.name) for user in config.users}
    associations |= {
        Association(account.name, user) for account in config.accounts for user in account.users
    }
    return AccountTree(
        accounts=accounts,
        associations=frozenset(associations),
        default_accounts={user.name: user.account for user in config.users},
    )
