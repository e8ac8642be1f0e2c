"""Runs a plan on the head node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.accounts.model import Change
    from toolkit.accounts.plan import Plan
    from toolkit.head_runner import Runner


def apply(runner: Runner, plan: Plan, on_change: Callable[[Change], None]) -> None:
    """Make every change in order; call `on_change` after each.

    Stops at the first change that sacctmgr refuses (`HeadCommandFailed`). A new plan
    continues there.
    """
    for change in plan.changes:
        runner.run(change.argv)
        on_change(change)
