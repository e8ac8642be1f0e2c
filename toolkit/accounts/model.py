"""Accounts, memberships, and the changes between two states of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "root"
OWNER = "toolkit"
"""The Organization of accounts that the toolkit made; it may remove these and no others."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account on one cluster."""

    name: str
    parent: str
    fairshare: int
    owned: bool  # the toolkit made it


@dataclass(frozen=True, slots=True, order=True)
class Association:
    """A user in an account.

    Other properties of it (the user's own share, limits, a partition) are not in
    cluster.yaml. They stay as the admin set them.
    """

    account: str
    user: str


@dataclass(frozen=True, slots=True)
class AccountTree:
    """The accounts, and the users who may charge them."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    associations: frozenset[Association] = frozenset()
    made: frozenset[Association] = frozenset()
    """Those of users that the toolkit made; it may remove these and no others."""
    partitioned: frozenset[Association] = frozenset()
    """Those of users that have associations of single partitions beside them."""
    taken: frozenset[str] = frozenset()
    """Accounts that somebody else made, also those on other clusters alone."""
    default_accounts: Mapping[str, str] = field(default_factory=dict)  # each user's default account


@dataclass(frozen=True, slots=True)
class Change:
    """A sacctmgr call, and its description for a person."""

    verb: Literal["add", "change", "remove"]
    description: str
    argv: tuple[str, ...]
