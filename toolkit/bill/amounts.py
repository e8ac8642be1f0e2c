"""Amounts of a bill as exact decimals.

AWS writes costs with many places, so nothing here is rounded. A sum that would need
rounding raises an error: `_EXACT` traps it. The bounds of `parse_usd` keep that from
happening to a bill.
"""

from __future__ import annotations

from decimal import (
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
)
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

HIGHEST_USD: Final = Decimal(10) ** 12
"""US dollars. No line of a bill has a millionth of it: a higher amount is damage."""

_PLACES: Final = 30
"""Decimal places. The shortest text of a double of at least 1e-13 dollars has no more."""

_EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
"""Thirteen digits before the point, thirty after it, and room for 10^37 lines."""

ZERO: Final = Decimal(0)


def parse_amount(text: str | None) -> Decimal | None:
    """Return the exact decimal; None if the text is no amount.

    NaN, Infinity and 1e40 are none. A Parquet DOUBLE comes here as the shortest decimal
    that gives the same double. That is what AWS wrote, if it had at most 15 digits.
    """
    if not text:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    if not amount.is_finite() or abs(amount) > HIGHEST_USD:
        return None
    # Checked before any arithmetic: 1e-999999 would need a million digits.
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_PLACES:
        return ZERO if amount.is_zero() else None
    return amount


def add(first: Decimal, second: Decimal) -> Decimal:
    """Return the exact sum."""
    return _EXACT.add(first, second)


def subtract(first: Decimal, second: Decimal) -> Decimal:
    """Return the exact difference."""
    return _EXACT.subtract(first, second)


def times(amount: Decimal, count: int) -> Decimal:
    """Return the exact multiple."""
    return _EXACT.multiply(amount, Decimal(count))


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Return the exact sum of all."""
    result = ZERO
    for amount in amounts:
        result = add(result, amount)
    return result
