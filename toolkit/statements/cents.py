"""Cents of micro-dollars, rounded so that parts add up to their sum. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

CENT: Final = 10_000
"""Micro-dollars."""
_WHOLE: Final = 100


def cents(micro: int) -> int:
    """Return the nearest cent; a half goes to the even one."""
    whole, rest = divmod(micro, CENT)
    half = CENT // 2
    return whole + (rest > half or (rest == half and whole % 2 == 1))


def apportioned(micros: Sequence[int], total: int | None = None) -> list[int]:
    """Return the amounts in cents; they add up to the total.

    The total is the rounded sum, or one that differs from the exact sum by less than a cent. Each
    part is within a cent of its amount, by largest remainder. Amounts may be negative.
    """
    total = cents(sum(micros)) if total is None else total
    parts = [micro // CENT for micro in micros]
    residue = total - sum(parts)
    if not 0 <= residue <= len(parts):
        raise ValueError(f"{total} cents is not the sum of these amounts")
    order = sorted(range(len(micros)), key=lambda place: (-(micros[place] % CENT), place))
    for place in order[:residue]:
        parts[place] += 1
    return parts


def percent_of(amount: int, percent: Decimal) -> int:
    """Return a percentage of cents, in whole cents.

    A half goes to the even one.
    """
    above, below = (amount * percent).as_integer_ratio()
    whole, rest = divmod(above, below * _WHOLE)
    return whole + (2 * rest > below * _WHOLE or (2 * rest == below * _WHOLE and whole % 2 == 1))


def usd_text(amount: int) -> str:
    """Return cents as dollars, such as -1,234.50."""
    whole, rest = divmod(abs(amount), _WHOLE)
    return f"{'-' if amount < 0 else ''}{whole:,}.{rest:02}"


def plain_text(amount: int) -> str:
    """Return cents as dollars for a program, without commas."""
    return usd_text(amount).replace(",", "")
