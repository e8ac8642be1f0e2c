"""The accounts that budgets keep from partitions, for people's commands."""

from __future__ import annotations

from pathlib import Path

from slurmplugins.budgets import files
from slurmplugins.config import budgets as budgets_config, paths


def denied_accounts(config: Path = paths.BURST) -> dict[str, tuple[str, ...]]:
    """Return them by partition, as the last pass of slurm-budget left them.

    Slurm is not asked. Raises EngineError.
    """
    budgets = budgets_config.load(config)
    if not budgets.budgets:
        return {}
    memory = files.load(Path(budgets.folder))
    return {name: tuple(sorted(accounts)) for name, accounts in memory.denied.items()}
