"""Money is whole micro-dollars, and dividing it loses nothing."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from toolkit.accounting.money import apportion, exact_amount, exact_sum, round_to_micro, usd


def test_an_hour_costs_the_hourly_price():
    assert round_to_micro(exact_amount(Decimal("1.006"), 3600)) == 1_006_000


def test_the_cost_of_a_second_is_not_rounded():
    second = exact_amount(Decimal("0.1008"), 1)
    assert second == 28
    assert exact_amount(Decimal("0.1"), 1) == Fraction(250, 9)


def test_shares_of_a_second_cost_their_part():
    assert exact_amount(Decimal("0.1"), Fraction(1, 3)) * 3 == exact_amount(Decimal("0.1"), 1)


@given(st.lists(st.fractions()))
def test_a_sum_of_exact_amounts_loses_nothing(amounts):
    assert exact_sum(amounts) == sum(amounts, Fraction(0))


def test_parts_sum_to_the_total_and_the_largest_remainder_gets_the_residue():
    assert apportion(10, [Fraction(1), Fraction(1), Fraction(1)]) == [4, 3, 3]
    assert apportion(1, [Fraction(1), Fraction(2)]) == [0, 1]


def test_an_amount_without_weights_is_not_divided():
    assert apportion(7, [Fraction(0), Fraction(0)]) == [7, 0]
    assert apportion(0, []) == []
    with pytest.raises(ValueError, match="nothing to divide"):
        apportion(1, [])


def test_dollars_keep_all_six_places():
    assert str(usd(1)) == "0.000001"
    assert str(usd(-2_500_000)) == "-2.500000"
