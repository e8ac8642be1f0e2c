"""Budgets that a plan tries before the head has them. Pure.

They come from anybody who may look. So they are read as strictly as the head's own. Nothing but
the budgets is taken: no folder and no billing weight. A plan runs no program of `notify`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.config import budgets as budgets_config
from slurmplugins.errors import BadName
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from slurmplugins.config.budgets import BudgetsConfig

KEYS: Final = ("limits", "families", "account_projects")
"""What of burst.json's part follows from the budgets and accounts of cluster.yaml alone."""


def with_budgets(config: BudgetsConfig, text: str) -> BudgetsConfig:
    """Return the head's settings with other budgets.

    The text is JSON with exactly `limits`, `families` and `account_projects`. Raises BadName
    or ConfigError.
    """
    try:
        value = json_input.loads(text)
    except ValueError as error:
        raise BadName(f"not budgets: {str(error)[:80]}") from error
    if not isinstance(value, dict) or value.keys() != set(KEYS):
        raise BadName(f"not budgets: expected exactly {', '.join(KEYS)}")
    given = budgets_config.parse({budgets_config.KEY: budgets_config.to_json(config) | value})
    return replace(
        config,
        budgets=given.budgets,
        families=given.families,
        account_projects=given.account_projects,
    )
