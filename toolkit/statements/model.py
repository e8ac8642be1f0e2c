"""A statement, its lines and its amounts in cents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    from toolkit.accounting.charges import ChargePrices
    from toolkit.statements.settings import AccountFacts


@dataclass(frozen=True, slots=True)
class Line:
    """An amount with its name."""

    text: str
    cents: int


@dataclass(frozen=True, slots=True)
class RateLine:
    """The use of one instance type at a rate of the house, or at cost."""

    instance_type: str
    node_hours: Decimal
    usd_per_hour: Decimal | None
    """The price of a node's hour; None: the rate card has none, so the actual cost counts."""
    cents: int


@dataclass(frozen=True, slots=True)
class Issue:
    """The facts that all statements of a period share."""

    cluster: str
    issuer: str
    sender: str
    period: str
    first: str
    last: str
    known_to: str
    """The last day whose cost is in it."""
    made_at: int
    closed_at: int | None
    """None: the period is open, so the statement is preliminary."""
    revision: int
    list_price: str
    rates_as_of: str = ""
    has_prices: bool = True
    """False: a month that was closed before statements told their prices."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The charge of an account for a period.

    The lines of `due_lines` add up to `due`, those of `cost_lines` to `cost`.
    """

    issue: Issue
    account: AccountFacts
    cost_lines: tuple[Line, ...]
    cost: int
    rate_lines: tuple[RateLine, ...]
    rated: int | None
    """The sum of the rate lines; None without a rate card."""
    due_lines: tuple[Line, ...]
    reduction: int
    """The discount and the subsidy, as a positive amount."""
    due: int
    projects: tuple[Line, ...] = ()
    users: tuple[Line, ...] = ()
    below: tuple[Line, ...] = ()
    """The due of each account right below, with those below it."""
    total: int = 0
    """Its due, with that of all accounts below."""
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    prices: ChargePrices | None = None
    """Of its actual cost: the sources, and the oldest price's age."""


@dataclass(frozen=True, slots=True)
class Charged:
    """An account's amounts, as the accounting journal has them."""

    account: str
    cost_centre: str
    list_price: int
    """With corrections of earlier periods, before discounts."""
    reduction: int
    """The discount and the subsidy, as a positive amount."""
    due: int


@dataclass(frozen=True, slots=True)
class PeriodStatements:
    """All statements of a period, and what no account is charged for."""

    issue: Issue
    statements: tuple[Statement, ...]
    charged: tuple[Charged, ...]
    cluster: int
    """The cost that no account caused, with its corrections."""
