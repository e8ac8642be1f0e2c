"""Accounts and users in slurmdbd, as part of a deploy: adds and changes, never removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts import apply, plan, read, wanted

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.output import Reporter


def apply_accounts(config: ClusterConfig, head: Runner, report: Reporter) -> int:
    """Make slurmdbd hold what cluster.yaml declares; returns how much was changed.

    Comes after the head's playbook: slurmctld looks up a user's uid when it is told of the user.
    What cluster.yaml no longer has stays; `toolkit accounts apply --prune` is for that.
    """
    todo = plan(wanted(config), read(head, config.cluster), config.cluster, prune=False)
    if not todo.changes:
        return 0
    with report.phase("Setting up accounts and users") as phase:
        apply(head, todo, lambda change: phase.update(change.what))
        phase.result(f"{len(todo.changes)} changes")
    return len(todo.changes)
