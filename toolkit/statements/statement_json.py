"""A statement as JSON values. Amounts are text in dollars with two places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.accounting.export import iso, price_fields
from toolkit.statements.cents import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.statements.model import Line, Statement


def statement_json(statement: Statement) -> dict[str, Any]:
    """Return all of a statement."""
    issue, account = statement.issue, statement.account
    return {
        "cluster": issue.cluster,
        "period": issue.period,
        "closed_at": iso(issue.closed_at),
        "revision": issue.revision,
        "currency": "USD",
        "account": account.name,
        "parent": account.parent,
        "owner": account.owner or None,
        "cost_centre": account.cost_centre or None,
        "grant": None if account.grant is None else account.grant.name,
        "cost": plain_text(statement.cost),
        "cost_lines": _lines(statement.cost_lines),
        "rate_card": None if statement.rated is None else plain_text(statement.rated),
        "rate_lines": [
            {
                "type": line.instance_type,
                "node_hours": str(line.node_hours),
                "usd_per_hour": None if line.usd_per_hour is None else str(line.usd_per_hour),
                "usd": plain_text(line.cents),
            }
            for line in statement.rate_lines
        ],
        "due_lines": _lines(statement.due_lines),
        "due": plain_text(statement.due),
        "projects": _lines(statement.projects),
        "users": _lines(statement.users),
        "below": _lines(statement.below),
        "total_with_below": plain_text(statement.total),
        "unknown": list(statement.unknown),
        "notes": list(statement.notes),
        **(price_fields(statement.prices) if issue.has_prices else {}),
    }


def _lines(lines: Iterable[Line]) -> list[dict[str, str]]:
    return [{"text": line.text, "usd": plain_text(line.cents)} for line in lines]
