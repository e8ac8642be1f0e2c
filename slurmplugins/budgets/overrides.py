"""A person's exceptions from account budgets, each with an end."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets import files
from slurmplugins.budgets.memory import Override
from slurmplugins.budgets.printing import LIFTED, override_json
from slurmplugins.errors import BadName
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from slurmplugins.config.budgets import BudgetsConfig

LONGEST: Final = 400 * 86_400
"""Seconds that an override may last."""
HIGHEST_USD: Final = 10**9


def set_override(config: BudgetsConfig, name: str, override: Override | None, now: float) -> None:
    """Remember a person's exception, or end it. Raises BadName or StateError."""
    if name not in config.budgets:
        known = ", ".join(sorted(config.budgets)) or "none"
        raise BadName(f"the head has no account budget {name[:80]!r}; it has {known}")
    folder = Path(config.folder)
    memory = files.load(folder)
    overrides = {key: item for key, item in memory.overrides.items() if key != name}
    if override is not None:
        overrides[name] = override
    files.save(folder, replace(memory, overrides=overrides))
    event = LogEvent.BUDGET_OVERRIDE_CHANGED.value
    files.audit(folder, now, event, budget=name, override=override_json(override))


def parse_override(usd: str, until: str, by: str, reason: str, now: float) -> Override:
    """Read an exception from its words. Raises BadName."""
    try:
        amount = None if usd == LIFTED else Decimal(usd)
        end = float(until)
    except ArithmeticError as error:
        raise BadName(f"not US dollars: {usd[:80]!r}") from error
    except ValueError as error:
        raise BadName(f"not a moment: {until[:80]!r}") from error
    if amount is not None and not (amount.is_finite() and 0 < amount < HIGHEST_USD):
        raise BadName(f"not US dollars above 0: {usd[:80]!r}")
    if not now < end < now + LONGEST:
        raise BadName("an override ends in the future, within 400 days")
    return Override(until=end, by=by[:80], reason=reason[:300], at=now, usd=amount)
