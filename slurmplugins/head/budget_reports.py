"""The accounts and jobs that budgets keep from starting, for people's commands."""

from __future__ import annotations

from pathlib import Path

from slurmplugins.budgets import files
from slurmplugins.budgets.memory import Memory
from slurmplugins.config import budgets as budgets_config, paths


def denied_accounts(config: Path = paths.BURST) -> dict[str, tuple[str, ...]]:
    """Return the accounts that budgets keep from partitions, by partition.

    The last pass of slurm-budget left them so; Slurm is not asked. Raises EngineError.
    """
    memory = _memory(config)
    return {name: tuple(sorted(accounts)) for name, accounts in memory.denied.items()}


def held_jobs(config: Path = paths.BURST) -> tuple[int, ...]:
    """Return the jobs that the budgets of their projects hold. Raises EngineError."""
    return tuple(sorted(_memory(config).held_jobs))


def _memory(config: Path) -> Memory:
    """Return the memory, or an empty one on a head without budgets."""
    budgets = budgets_config.load(config)
    return files.load(Path(budgets.folder)) if budgets.budgets else Memory()
