"""Money as whole micro-dollars, and the one way of dividing an amount.

Rates and shares are Fractions, so nothing is rounded before the one place that rounds.
An instance's cost becomes a whole number of micro-dollars, and `apportion` divides that
number.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MICRO = 1_000_000
SECONDS_PER_HOUR = 3600


@lru_cache(maxsize=4096)  # a report has few prices and very many seconds
def _micro_per_second(usd_per_hour: Decimal) -> Fraction:
    return Fraction(usd_per_hour) * MICRO / SECONDS_PER_HOUR


def exact_amount(usd_per_hour: Decimal, seconds: Fraction | int) -> Fraction:
    """Return the exact price of some seconds, in micro-dollars, unrounded."""
    rate = _micro_per_second(usd_per_hour)
    if isinstance(seconds, int):  # as most are; a Fraction times a number makes a third one
        return Fraction(rate.numerator * seconds, rate.denominator)
    return rate * seconds


def exact_sum(amounts: Sequence[Fraction]) -> Fraction:
    """Return the sum of exact amounts, reduced once."""
    if len(amounts) == 1:
        return amounts[0]
    common = lcm(*(amount.denominator for amount in amounts))
    whole = sum(amount.numerator * (common // amount.denominator) for amount in amounts)
    return Fraction(whole, common)


def round_to_micro(exact: Fraction) -> int:
    """Return the nearest whole micro-dollar; halves go to the even one."""
    return round(exact)


def usd(micro: int) -> Decimal:
    """Return micro-dollars as dollars, with all six places."""
    return (Decimal(micro) / MICRO).quantize(Decimal("0.000001"))


def apportion(total: int, weights: Sequence[Fraction]) -> list[int]:
    """Divide a total by weights into whole parts that sum to it.

    Every part is within one of its exact share (largest remainder; ties go to the
    earlier part). The rounding residue is never lost, and is never more than one
    micro-dollar in any part. Weights must not be negative; if all are 0 the first part
    takes the total.
    """
    if not weights:
        if total:
            raise ValueError("an amount and nothing to divide it over")
        return []
    # Over one denominator the weights, and all results below, are whole numbers.
    common = lcm(*(weight.denominator for weight in weights))
    whole_weights = [weight.numerator * (common // weight.denominator) for weight in weights]
    sum_of_weights = sum(whole_weights)
    if sum_of_weights == 0:
        return [total, *[0] * (len(weights) - 1)]
    shares = [divmod(weight * total, sum_of_weights) for weight in whole_weights]
    parts = [share for share, _ in shares]
    residue = total - sum(parts)
    by_remainder = sorted(range(len(parts)), key=lambda index: (-shares[index][1], index))
    for index in by_remainder[:residue]:
        parts[index] += 1
    return parts
