"""Slurm's accounts and users as code: what cluster.yaml wants, against what slurmdbd has.

`plan` is pure; `apply` runs its changes. Accounts that an admin made by hand are left alone unless
cluster.yaml declares them, and root always is.
"""

from __future__ import annotations

from toolkit.accounts.apply import apply
from toolkit.accounts.current import read
from toolkit.accounts.model import Account, Book, Change, Membership
from toolkit.accounts.plan import Plan, plan
from toolkit.accounts.wanted import wanted

__all__ = ["Account", "Book", "Change", "Membership", "Plan", "apply", "plan", "read", "wanted"]
