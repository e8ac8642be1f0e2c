"""The days of a report against AWS's bill, as the report shows them.

`toolkit.bill` keeps the record of bills and makes these values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import date
    from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Correction:
    """A change of a final day by a later bill. Amounts are US dollars."""

    day: date
    resource: str  # an instance id
    old: Decimal
    new: Decimal
    difference: Decimal
    at: int  # epoch second at which it was recorded


@dataclass(frozen=True, slots=True)
class BillStatus:
    """The numbers of days of a report that are estimated, reconciled and final."""

    estimated: int
    reconciled: int
    final: int
    corrections: tuple[Correction, ...] = ()


def usd_text(amount: Decimal) -> str:
    """Return dollars as plain decimal text, without an exponent."""
    text = f"{amount:f}"
    whole, _, places = text.partition(".")
    return f"{whole}.{places.rstrip('0').ljust(6, '0')}"


def status_line(status: BillStatus) -> str:
    """Return the line of a report."""
    counts = f"{status.estimated} estimated, {status.reconciled} reconciled, {status.final} final"
    return f"days against AWS's bill: {counts}"


def correction_line(correction: Correction) -> str:
    """Return the line of one correction."""
    sign = "+" if correction.difference > 0 else ""
    return (
        f"correction of {correction.day.isoformat()}: {correction.resource} from"
        f" {usd_text(correction.old)} to {usd_text(correction.new)}"
        f" ({sign}{usd_text(correction.difference)} USD)"
    )
