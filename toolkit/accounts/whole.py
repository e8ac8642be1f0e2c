"""The whole plan of `toolkit accounts`: accounts and users, their limits, then classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounts.associations import read_associations, with_marks
from toolkit.accounts.classes import declared_classes, plan_classes, read_classes
from toolkit.accounts.current import read
from toolkit.accounts.declared import declared_accounts
from toolkit.accounts.limits import declared_limits, plan_limits
from toolkit.accounts.plan import Plan, plan

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner


def whole_plan(
    config: ClusterConfig, runner: Runner, *, prune: bool = False, adopt: bool = False
) -> Plan:
    """Return what slurmdbd lacks of cluster.yaml.

    slurmdbd's QOS are read where cluster.yaml has classes, or where those that it had may be
    removed. Raises HeadCommandFailed, SlurmAnswerError, AccountTakenError or
    ClassTakenError.
    """
    existing = read_associations(runner, config.cluster)
    current = with_marks(read(runner, config.cluster), existing)
    parts = [
        plan(declared_accounts(config), current, config.cluster, prune=prune, adopt=adopt),
        plan_limits(
            declared_limits(config),
            existing,
            config.cluster,
            budgeted=frozenset(name for item in config.budgets.values() for name in item.accounts),
            adopt=adopt,
        ),
    ]
    if config.classes or prune:
        parts.append(
            plan_classes(
                declared_classes(config),
                read_classes(runner, config.cluster),
                config.cluster,
                prune=prune,
            )
        )
    return Plan(
        tuple(change for part in parts for change in part.changes),
        tuple(entry for part in parts for entry in part.left_alone),
        tuple(note for part in parts for note in part.notes),
    )
