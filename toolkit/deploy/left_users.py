"""The part of deploy and apply that concerns users who left cluster.yaml, and came back.

The head's playbook has locked their accounts. A job of theirs could still submit another one, for
ever: slurmctld asks no account for a password. So their associations may submit nothing more.

What is limited is read from slurmdbd alone: a comment marks each association that was limited here.
So a run that was cut off is completed by the next one, and a limit of an admin's own stays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounts import forms
from toolkit.accounts.marks import LEFT, Marks
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner

USERS_FILE = "/shared/.toolkit/users.json"
NOTHING, NO_LIMIT = "0", "-1"
_FIELDS = ("user", "account", "partition", "maxsubmitjobs", "comment")


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of jobs that one association of a user may have."""

    user: str
    account: str
    partition: str
    max_submit_jobs: str
    comment: str

    @property
    def is_ours(self) -> bool:
        """Return whether the limit was set here, because the user left."""
        return Marks.parse(self.comment).value(LEFT) is not None

    @property
    def before(self) -> str:
        """Return the limit that it had before the user left."""
        return Marks.parse(self.comment).value(LEFT) or NO_LIMIT

    @property
    def kept_marks(self) -> Marks:
        """Return its marks. An admin's comment that sacctmgr can't write is lost."""
        marks = Marks.parse(self.comment)
        return marks if marks.writable else Marks(marks.values)


@dataclass(frozen=True, slots=True)
class JobsOfLeftUser:
    """The jobs that go on although their user left."""

    user: str
    count: int

    def __str__(self) -> str:
        jobs = "job" if self.count == 1 else "jobs"
        return (
            f"{self.user} has left, and {self.count} {jobs} of {self.user} go on: "
            "`toolkit apply --cancel-jobs-of-left-users` cancels them"
        )


def limit_left_users(
    config: ClusterConfig, head: Runner, *, cancel: bool = False
) -> tuple[JobsOfLeftUser, ...]:
    """Limit who left, free who came back, return jobs that go on.

    Call it after the head node's playbook, which writes who left. With `cancel`, none goes on.
    Safe to repeat.
    """
    left = read_left(head)
    present = frozenset(user.name for user in config.users) - left
    for limit in read_limits(config, head):
        if limit.user in left and limit.max_submit_jobs != NOTHING:
            marks = limit.kept_marks.marked(LEFT, limit.max_submit_jobs)
            head.run(_modify(config, limit, NOTHING, marks.text))
        elif limit.user in present and limit.is_ours:
            marks = limit.kept_marks.unmarked(LEFT)
            head.run(_modify(config, limit, limit.before, marks.text))
    if not cancel:
        return tuple(jobs_of(head, left))
    for name in sorted(left):
        head.run(["scancel", f"--user={name}"])
    return ()


def read_left(head: Runner) -> frozenset[str]:
    """Return the users who left; none where the file is missing.

    Raises HeadCommandFailed if the file can't be read: a user who left must not count as present.
    """
    try:
        text = head.run(["cat", USERS_FILE])
    except HeadCommandFailed as error:
        if "No such file" not in error.stderr:
            raise
        return frozenset()
    try:
        return frozenset(str(row["name"]) for row in json.loads(text) if row.get("left"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SlurmAnswerError(f"{USERS_FILE} on the head node is not a list of users") from error


def read_limits(config: ClusterConfig, head: Runner) -> tuple[Limit, ...]:
    """Return the users' limits, an account's before those of its partitions.

    A change of the account's reaches those of its partitions too.
    """
    # woplimits: an account's limit is not the user's own, and must not come back as such.
    conditions = ("woplimits", f"cluster={config.cluster}", f"format={','.join(_FIELDS)}")
    text = head.run(["sacctmgr", "-n", "-P", "show", "assoc", *conditions])
    limits = [Limit(*cells) for cells in forms.rows(text, _FIELDS) if cells[0]]
    return tuple(sorted(limits, key=lambda limit: (limit.user, limit.account, limit.partition)))


def _modify(config: ClusterConfig, limit: Limit, new: str, comment: str) -> list[str]:
    where = [f"name={limit.user}", f"account={limit.account}", f"cluster={config.cluster}"]
    if limit.partition:
        where.append(f"partition={limit.partition}")
    settings = [f"maxsubmitjobs={new}", f"comment={comment}"]
    return ["sacctmgr", "-i", "modify", "user", "where", *where, "set", *settings]


def jobs_of(head: Runner, users: Iterable[str]) -> Iterator[JobsOfLeftUser]:
    """Yield the users who have jobs."""
    names = sorted(users)
    if not names:
        return
    output = head.run(["squeue", "--noheader", "--format=%u", f"--user={','.join(names)}"])
    owners = output.split()
    yield from (JobsOfLeftUser(name, owners.count(name)) for name in names if name in owners)
