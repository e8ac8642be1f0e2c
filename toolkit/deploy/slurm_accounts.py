"""The part of deploy that adds and changes accounts, users and classes; it removes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts import apply, whole_plan
from toolkit.output import plain

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.output import Reporter


def apply_accounts(config: ClusterConfig, head: Runner, report: Reporter) -> int:
    """Make slurmdbd hold cluster.yaml's accounts; return the number of changes.

    Call it after the head node's playbook: slurmctld looks up a new user's uid.
    Accounts that cluster.yaml no longer has stay; `toolkit accounts apply --prune` removes them.
    Raises AccountTakenError or ClassTakenError where somebody else made what the file declares.
    """
    account_plan = whole_plan(config, head)
    for note in account_plan.notes:
        report.line(plain(note))
    if not account_plan.changes:
        return 0
    with report.phase("Setting up accounts and users") as phase:
        apply(head, account_plan, lambda change: phase.update(change.description))
        phase.result(f"{len(account_plan.changes)} changes")
    return len(account_plan.changes)
