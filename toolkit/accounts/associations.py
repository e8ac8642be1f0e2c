"""Reads what of slurmdbd's associations is the toolkit's: the marks in their comments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from toolkit.accounts import forms
from toolkit.accounts.marks import MADE, Marks
from toolkit.accounts.model import Association

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.accounts.model import AccountTree
    from toolkit.head_runner import Runner

_FIELDS: Final = ("Account", "User", "Partition", "Comment")


@dataclass(frozen=True, slots=True)
class Existing:
    """An association in slurmdbd. Its user is empty for the account itself."""

    marks: Marks = field(default_factory=Marks)
    has_partitions: bool = False
    """The user has associations of single partitions in this account, too.

    sacctmgr would change and remove these with it, and only admins make them.
    """


def read_associations(runner: Runner, cluster: str) -> dict[Association, Existing]:
    """Return the associations of a cluster."""
    show = ("sacctmgr", "-n", "-P", "show", "assoc", "woplimits", f"cluster={cluster}")
    return parse_associations(runner.run([*show, f"format={','.join(_FIELDS)}"]))


def parse_associations(text: str) -> dict[Association, Existing]:
    """Parse the answer."""
    found, partitioned = {}, set()
    for account, user, partition, comment in forms.rows(text, _FIELDS):
        if partition:
            partitioned.add(Association(account, user))
        else:
            found[Association(account, user)] = Existing(Marks.parse(comment))
    return {key: replace(item, has_partitions=key in partitioned) for key, item in found.items()}


def with_marks(tree: AccountTree, existing: Mapping[Association, Existing]) -> AccountTree:
    """Return the tree with the users' associations that the toolkit made, and may remove."""
    made = frozenset(
        key
        for key, item in existing.items()
        if key.user and item.marks.value(MADE) is not None and not item.has_partitions
    )
    return replace(tree, made=made)
