"""Amounts of money, parts and moments in cluster.yaml, read exactly.

A YAML number comes through a float. With up to 15 digits that float stands for the number in the
file alone; a longer one must be in quotes.
"""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator

from toolkit.prices.model import HIGHEST_USD, parse_usd

HIGHEST_TOTAL = Decimal(1_000_000_000)
"""US dollars of one purchase. A higher amount is a mistake."""

_FLOAT_DIGITS = 15
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?::(\d{2}))?(?:Z|\+00:00)?)?", re.ASCII
)


def _exact(value: Any, expected: str, highest: Decimal) -> Decimal:
    if isinstance(value, float) and len(Decimal(repr(value)).as_tuple().digits) > _FLOAT_DIGITS:
        raise ValueError(f"expected quotes around a number of more than {_FLOAT_DIGITS} digits")
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    amount = parse_usd(str(value), highest) if is_number else None
    if amount is None:
        raise ValueError(f"expected {expected}")
    return amount


def _usd(value: Any) -> Decimal:
    return _exact(value, f"US dollars above 0, up to {HIGHEST_USD:,}", HIGHEST_USD)


def _usd_total(value: Any) -> Decimal:
    return _exact(value, f"US dollars above 0, up to {HIGHEST_TOTAL:,}", HIGHEST_TOTAL)


def _percent(value: Any) -> Decimal:
    percent = _exact(value, "a percentage above 0 and below 100", Decimal(100))
    if percent == 100:  # noqa: PLR2004  # a percentage
        raise ValueError("expected a percentage above 0 and below 100")
    return percent


def _discount(value: Any) -> Decimal:
    """Read a percentage that may be nothing, or all of it."""
    if value == 0 and not isinstance(value, bool):
        return Decimal(0)
    return _exact(value, "a percentage from 0 to 100", Decimal(100))


def _part(value: Any) -> Decimal:
    return _exact(value, "a part above 0, up to 1, such as 0.7", Decimal(1))


def _years(value: Any) -> Decimal:
    return _exact(value, "years above 0, up to 30", Decimal(30))


def _watts(value: Any) -> Decimal:
    return _exact(value, "watts above 0, up to 100,000", Decimal(100_000))


def parse_moment(value: Any) -> datetime:
    """Return a day or a moment in UTC. Raises ValueError."""
    match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    expected = "expected a day such as 2026-11-01, or a moment in UTC such as 2026-11-01T11:30"
    if match is None:
        raise ValueError(expected)
    day, minute, second = match.groups()
    try:
        text = f"{day}T{minute or '00:00'}:{second or '00'}"
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise ValueError(expected) from error


Usd = Annotated[Decimal, BeforeValidator(_usd)]
UsdTotal = Annotated[Decimal, BeforeValidator(_usd_total)]
Percent = Annotated[Decimal, BeforeValidator(_percent)]
Discount = Annotated[Decimal, BeforeValidator(_discount)]
Part = Annotated[Decimal, BeforeValidator(_part)]
Years = Annotated[Decimal, BeforeValidator(_years)]
Watts = Annotated[Decimal, BeforeValidator(_watts)]
Moment = Annotated[datetime, BeforeValidator(parse_moment)]
