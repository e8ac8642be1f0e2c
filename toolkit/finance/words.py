"""Numbers as the HTML report and the savings ledger write them."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final

from toolkit.accounting.money import MICRO
from toolkit.accounting.terminal import duration

NO_DATA: Final = "no data"
NOT_MEASURED: Final = "not measured"
_PLACES = ((Fraction(1), 2), (Fraction(1, 100), 4))
_SMALLEST_PLACES = 6


def dollars(micro: Fraction | int) -> str:
    """Return US dollars, with more places for a small amount."""
    amount = Fraction(micro, MICRO)
    places = next((count for low, count in _PLACES if abs(amount) >= low), _SMALLEST_PLACES)
    text = f"{rounded(abs(amount), 2 if amount == 0 else places):,}"
    return f"-${text}" if amount < 0 else f"${text}"


def percent(value: Fraction) -> str:
    """Return a part of one as percent, with one place."""
    return f"{rounded(value * 100, 1)} %"


def hours(value: Fraction) -> str:
    """Return hours with one place."""
    return f"{rounded(value, 1):,} h"


def wait(seconds: Fraction) -> str:
    """Return a wait in its two largest units."""
    return duration(round(seconds))


def rounded(value: Fraction, places: int) -> Decimal:
    """Return the nearest decimal; halves go to the even one."""
    step = Decimal(1).scaleb(-places)
    numerator = round(value * 10**places)
    return (Decimal(numerator) * step).quantize(step, rounding=ROUND_HALF_EVEN)
