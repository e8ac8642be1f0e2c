"""The sections of cluster.yaml on statements: who gets one, and at which price."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from toolkit.config import types
from toolkit.config.money import Discount, Moment, Usd
from toolkit.config.section import Section
from toolkit.config.types import Label

Line = Annotated[str, Field(min_length=1, max_length=120, pattern=types.ONE_LINE)]
LedgerAccount = Annotated[str, Field(pattern=types.LEDGER_ACCOUNT)]


class Grant(Section):
    """The grant that pays for an account."""

    name: Line
    since: Moment
    until: Moment
    """Its last day."""


class RateCard(Section):
    """The prices of the house, for use by jobs."""

    as_of: Moment
    """The day from which they hold; each statement names it."""
    gpu_hour: Usd | None = None
    node_hours: dict[Label, Usd] = Field(default={})
    """The price of a node's hour, by instance type. It goes before `gpu_hour`."""


class Ledger(Section):
    """The accounts of the house's own books that an accounting journal names."""

    recovery: LedgerAccount = "recovery"
    """Credited with what accounts are charged before discounts."""
    subsidy: LedgerAccount = "subsidy"
    """Debited with discounts and subsidies."""
    cluster: LedgerAccount = "cluster"
    """Debited with the cost that no account caused."""


class Statements(Section):
    """The statements of accounts."""

    issuer: Line | None = None
    """Who writes them."""
    sender: Annotated[str, Field(pattern=types.EMAIL)] | None = None
    """The address that their mails are from."""
    list_price: Literal["cost", "rate-card"] = "cost"
    """What the list price is: the actual cost, or use at the rates of `rate_card`."""
    rate_card: RateCard | None = None
    discount_percent: Discount = Decimal(0)
    """The discount of every account without its own."""
    names: Literal["none", "own", "all"] = "own"
    """The users that a statement names: nobody, those of the account, or also those of accounts
    below it.
    """
    ledger: Ledger = Ledger()
