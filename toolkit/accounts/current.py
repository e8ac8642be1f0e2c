"""Reads slurmdbd's accounts and users by `sacctmgr -nP show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts.model import OWNER, ROOT, Account, Book, Membership
from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.head_runner import Runner

_ACCOUNTS = ("Account", "Organization")
_ASSOCIATIONS = ("Account", "User", "Partition", "ParentName", "Share")
_USERS = ("User", "DefaultAccount")
_PARENTS_SHARE = 2**31 - 1


def read(runner: Runner, cluster: str) -> Book:
    """Return a cluster's accounts and memberships, including the admin-made ones."""
    owners = runner.run(_show("account", _ACCOUNTS))
    associations = runner.run(_show("assoc", _ASSOCIATIONS, f"cluster={cluster}"))
    users = runner.run(_show("user", _USERS))
    return parse(owners, associations, users)


def parse(owners: str, associations: str, users: str) -> Book:
    """Parse the three answers to one book."""
    owned = {name for name, organization in _rows(owners, _ACCOUNTS) if organization == OWNER}
    accounts: dict[str, Account] = {}
    memberships = set()
    for account, user, partition, parent, share in _rows(associations, _ASSOCIATIONS):
        if user and not partition:
            memberships.add(Membership(account, user))
        elif not user and account != ROOT:
            accounts[account] = Account(account, parent or ROOT, _share(share), account in owned)
    defaults = {user: account for user, account in _rows(users, _USERS) if account}
    return Book(accounts, frozenset(memberships), defaults)


def _show(entity: str, fields: tuple[str, ...], *where: str) -> list[str]:
    return ["sacctmgr", "-n", "-P", "show", entity, *where, f"format={','.join(fields)}"]


def _rows(text: str, fields: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = tuple(cell.strip() for cell in line.split("|"))
        if len(cells) != len(fields):
            raise SlurmAnswerError(f"sacctmgr: {len(fields)} columns expected in {line[:80]!r}")
        yield cells


def _share(text: str) -> int:
    """Return the share; `parent` stands for a number, too.

    With it, the account has its parent's share.
    """
    return int(text) if text.isdigit() else _PARENTS_SHARE
