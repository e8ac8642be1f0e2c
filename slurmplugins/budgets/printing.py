"""Figures and plans of account budgets as values for JSON. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import budgets as budgets_config

if TYPE_CHECKING:
    from slurmplugins.budgets.figures import Figures
    from slurmplugins.budgets.memory import Memory, Override
    from slurmplugins.budgets.plan import BudgetPlan, BudgetSnapshot

LIFTED: Final = "lift"
"""In place of US dollars: no step of the budget holds."""


def printable(made: BudgetPlan, snapshot: BudgetSnapshot) -> dict[str, Any]:
    """Return the plan as values for JSON."""
    memory: Memory = snapshot.memory
    return {
        "at": snapshot.now,
        "measured_from": memory.measured_from,
        "measured_until": memory.measured_until,
        "closed_until": memory.closed_until,
        "budgets": [printable_figures(item) for item in made.figures],
        "changes": [
            *(item.fields for item in made.limits),
            *(item.fields for item in made.denials),
            *(item.fields for item in made.weights),
            *(
                {"job": job, "setting": "requeue", "value": None, "why": "requeue"}
                for job in made.requeues
            ),
            *(
                {"job": job, "setting": setting, "value": None, "why": "project"}
                for setting, jobs in (("hold", made.holds), ("release", made.releases))
                for job in jobs
            ),
        ],
        "problems": list(made.problems),
        "config": budgets_config.to_json(snapshot.config),
    }


def printable_figures(item: Figures) -> dict[str, Any]:
    """Return a budget's state as values for JSON; amounts are text."""
    return {
        "name": item.budget.name,
        "accounts": list(item.budget.accounts),
        "projects": list(item.budget.projects),
        "period": item.budget.kind.value,
        "begin": item.period.begin,
        "end": item.period.end,
        "usd": f"{item.usd:.2f}",
        "usd_spent": f"{item.spent:.2f}",
        "usd_committed": f"{item.committed:.2f}",
        "usd_free": None if item.free is None else f"{item.free:.2f}",
        "usd_forecast": f"{item.forecast:.2f}",
        "step": item.step.percent if item.step else None,
        "actions": sorted(action.value for action in item.actions),
        "since": item.since,
        "stale": item.stale,
        "ended": item.ended,
        "steps": [{"at": s.percent, "do": s.action.value} for s in item.budget.steps],
        "override": override_json(item.override),
    }


def override_json(item: Override | None) -> dict[str, Any] | None:
    """Return a person's exception as values for JSON."""
    if item is None:
        return None
    return {
        "usd": LIFTED if item.usd is None else f"{item.usd:f}",
        "until": item.until,
        "by": item.by,
        "reason": item.reason,
        "at": item.at,
    }
