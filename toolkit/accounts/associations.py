"""Reads slurmdbd's associations: their limits and shares, and the marks in their comments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from toolkit.accounts import forms
from toolkit.accounts.marks import MADE, Marks
from toolkit.accounts.model import Association
from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from toolkit.accounts.model import AccountTree
    from toolkit.head_runner import Runner

FAIRSHARE: Final = "fairshare"
SETTINGS: Final = (
    *(FAIRSHARE, "GrpTRES", "GrpJobs", "GrpSubmitJobs"),
    *("MaxTRES", "MaxJobs", "MaxSubmitJobs", "MaxWall"),
)
"""The settings of an association that cluster.yaml may have, as sacctmgr reads them."""
_TRES: Final = frozenset({"GrpTRES", "MaxTRES"})
_FIELDS: Final = ("Account", "User", "Partition", "Share", *SETTINGS[1:], "Comment")


@dataclass(frozen=True, slots=True)
class Existing:
    """An association in slurmdbd. Its user is empty for the account itself."""

    marks: Marks = field(default_factory=Marks)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its own settings in one form, without those of the accounts above.

    A TRES is one by itself, such as GrpTRES=cpu. An account's share is not among them.
    """
    has_partitions: bool = False
    """The user has associations of single partitions in this account, too.

    sacctmgr would change and remove these with it, and only admins make them.
    """


def read_associations(runner: Runner, cluster: str) -> dict[Association, Existing]:
    """Return the associations of a cluster.

    With `woplimits`, sacctmgr prints a limit only where it is set.
    """
    show = ("sacctmgr", "-n", "-P", "show", "assoc", "woplimits", f"cluster={cluster}")
    return parse_associations(runner.run([*show, f"format={','.join(_FIELDS)}"]))


def parse_associations(text: str) -> dict[Association, Existing]:
    """Parse the answer.

    An association of a single partition without its plain one has settings of the latter: none.
    """
    found: dict[Association, Existing] = {}
    partitioned = set()
    for account, user, partition, share, *limits, comment in forms.rows(text, _FIELDS):
        if partition:
            partitioned.add(Association(account, user))
            continue
        values = zip(SETTINGS, (share if user else "", *limits), strict=True)
        settings = dict(pair for name, value in values if value for pair in _settings(name, value))
        found[Association(account, user)] = Existing(Marks.parse(comment), settings)
    for key in partitioned:
        found[key] = replace(found.get(key, Existing()), has_partitions=True)
    return found


def with_marks(tree: AccountTree, existing: Mapping[Association, Existing]) -> AccountTree:
    """Return the tree with the associations of users that we made."""
    made = frozenset(
        key
        for key, item in existing.items()
        if key.user and item.marks.value(MADE) is not None and not item.has_partitions
    )
    partitioned = frozenset(key for key, item in existing.items() if item.has_partitions)
    return replace(tree, made=made, partitioned=partitioned)


def _settings(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield a setting in one form.

    What an admin may set and cluster.yaml may not stays as it was printed.
    """
    if name in _TRES:
        for part in value.split(","):
            tres, _, amount = part.partition("=")
            yield f"{name}={tres}", _or_as_printed(amount, lambda text: str(forms.amount(text)))
    elif name == "MaxWall":
        yield name, _or_as_printed(value, lambda text: forms.clock(forms.seconds(text)))
    else:
        yield name, value


def _or_as_printed(text: str, form: Callable[[str], str]) -> str:
    try:
        return form(text)
    except SlurmAnswerError:
        return text
