"""Reads slurmdbd's accounts and users by `sacctmgr -nP show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts import forms
from toolkit.accounts.model import OWNER, ROOT, Account, AccountTree, Association

if TYPE_CHECKING:
    from toolkit.head_runner import Runner

_ACCOUNTS = ("Account", "Organization")
_ASSOCIATIONS = ("Account", "User", "Partition", "ParentName", "Share")
_USERS = ("User", "DefaultAccount")
_PARENTS_SHARE = 2**31 - 1


def read(runner: Runner, cluster: str) -> AccountTree:
    """Return a cluster's accounts and memberships, including the admin-made ones."""
    account_rows = runner.run(_show("account", _ACCOUNTS))
    associations = runner.run(_show("assoc", _ASSOCIATIONS, f"cluster={cluster}"))
    users = runner.run(_show("user", _USERS))
    return parse(account_rows, associations, users)


def parse(account_rows: str, associations: str, users: str) -> AccountTree:
    """Parse the three answers."""
    owned_names: set[str] = set()
    taken: set[str] = set()
    for name, organization in forms.rows(account_rows, _ACCOUNTS):
        (owned_names if organization == OWNER else taken).add(name)
    accounts: dict[str, Account] = {}
    user_associations = set()
    for account, user, partition, parent, share in forms.rows(associations, _ASSOCIATIONS):
        if user and not partition:
            user_associations.add(Association(account, user))
        elif not user and account != ROOT:
            accounts[account] = Account(
                account, parent or ROOT, _share(share), account in owned_names
            )
    default_accounts = {user: account for user, account in forms.rows(users, _USERS) if account}
    return AccountTree(
        accounts,
        frozenset(user_associations),
        default_accounts=default_accounts,
        taken=frozenset(taken - {ROOT}),
    )


def _show(entity: str, fields: tuple[str, ...], *conditions: str) -> list[str]:
    return ["sacctmgr", "-n", "-P", "show", entity, *conditions, f"format={','.join(fields)}"]


def _share(text: str) -> int:
    """Return the share; `parent` stands for a number, too.

    With it, the account has its parent's share.
    """
    return int(text) if text.isdigit() else _PARENTS_SHARE
