"""The part of deploy and apply that concerns users who left cluster.yaml, and came back.

The head's playbook has locked their accounts. A job of theirs could still submit another one, for
ever: slurmctld asks no account for a password. So their associations may submit nothing more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from toolkit.deploy.head import Head
from toolkit.errors import HeadCommandFailed, HeadNotReady, StackMissing
from toolkit.head_runner import SlurmAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.head_runner import Runner

USERS_FILE = "/shared/.toolkit/users.json"
NOTHING, NO_LIMIT = "0", "-1"


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


def read_left_of_running(clients: Clients, config: ClusterConfig) -> frozenset[str]:
    """Return who left before a deploy; none where no head node answers."""
    try:
        return read_left(Head(clients, config))
    except (StackMissing, HeadNotReady):
        return frozenset()


def limit_submissions(
    config: ClusterConfig, head: Runner, before: frozenset[str], left: frozenset[str]
) -> None:
    """Limit who left to no more jobs, and free who came back.

    `before` are the users who had left before this apply. Safe to repeat.
    """
    if not before | left:
        return
    fields = "format=user,maxsubmitjobs"
    rows = head.run(["sacctmgr", "-nP", "show", "assoc", f"cluster={config.cluster}", fields])
    limits = dict(row.split("|") for row in rows.splitlines() if row.count("|") == 1)
    for name in sorted(before | left):
        new = NOTHING if name in left else NO_LIMIT
        is_limited = limits.get(name) == NOTHING
        if name in limits and is_limited != (name in left):
            where = ("where", f"name={name}", f"cluster={config.cluster}")
            head.run(["sacctmgr", "-i", "modify", "user", *where, "set", f"maxsubmitjobs={new}"])


def jobs_of(head: Runner, users: Iterable[str]) -> dict[str, int]:
    """Return the users who have jobs, and how many."""
    names = sorted(users)
    if not names:
        return {}
    output = head.run(["squeue", "--noheader", "--format=%u", f"--user={','.join(names)}"])
    owners = output.split()
    return {name: owners.count(name) for name in names if name in owners}


def cancel_jobs(head: Runner, users: Iterable[str]) -> None:
    """Cancel every job of these users."""
    for name in sorted(users):
        head.run(["scancel", f"--user={name}"])


def left_user_lines(jobs: dict[str, int]) -> list[str]:
    """Return the sentences about jobs that go on."""
    return [
        f"{name} has left, and {count} {'job' if count == 1 else 'jobs'} of {name} go on: "
        "`toolkit apply --cancel-jobs-of-left-users` cancels them"
        for name, count in sorted(jobs.items())
    ]
