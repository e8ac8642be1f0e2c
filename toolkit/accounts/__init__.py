"""Slurm's accounts, users and workload classes as code: cluster.yaml against slurmdbd.

Belongs here: reading both sides, their difference, and applying it on the head node.
Does not: Linux users (the playbooks make them) and costs of accounts
(`toolkit.accounting`).

`plan` is pure; `apply` runs its changes. What an admin made by hand is left alone: an account of
cluster.yaml that somebody else made is refused unless it is adopted. root is always left alone.
"""

from __future__ import annotations

from toolkit.accounts.apply import apply
from toolkit.accounts.associations import read_associations, with_marks
from toolkit.accounts.classes import ClassTree, declared_classes, plan_classes, read_classes
from toolkit.accounts.current import read
from toolkit.accounts.declared import declared_accounts
from toolkit.accounts.model import Account, AccountTree, Association, Change
from toolkit.accounts.plan import Plan, plan
from toolkit.accounts.whole import whole_plan

__all__ = [
    "Account",
    "AccountTree",
    "Association",
    "Change",
    "ClassTree",
    "Plan",
    "apply",
    "declared_accounts",
    "declared_classes",
    "plan",
    "plan_classes",
    "read",
    "read_associations",
    "read_classes",
    "whole_plan",
    "with_marks",
]
