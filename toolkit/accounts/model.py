"""Accounts, memberships, and the changes between two states of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "root"
OWNER = "toolkit"
"""The Organization of accounts that the toolkit made: what it made it may remove, nothing else."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account on one cluster. `owned` says that the toolkit made it."""

    name: str
    parent: str
    fairshare: int
    owned: bool


@dataclass(frozen=True, slots=True, order=True)
class Membership:
    """A user in an account.

    What cluster.yaml can't say of it (the user's own share, limits, a partition) stays as the admin
    set it.
    """

    account: str
    user: str


@dataclass(frozen=True, slots=True)
class Book:
    """Everything about who may charge whom; `defaults` is each user's default account."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    memberships: frozenset[Membership] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One sacctmgr call and what it means to a person."""

    verb: Literal["add", "change", "remove"]
    what: str
    argv: tuple[str, ...]
