"""Rounding by SQL, where the amounts are exactly between two micro-dollars."""

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from tests.unit.usage.samples import stored
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.tres import Tres
from toolkit.prices import Shape
from toolkit.usage import database as databases, engine
from toolkit.usage.dump_columns import COLUMNS


def amounts(usd, *attempts, seconds=60, shape=G5):
    """Return each attempt's micro-dollars on one instance."""
    instance = an_instance(ended=T0 + seconds)
    prices = usd if isinstance(usd, dict) else {T0 - 1: usd}
    book = a_book(*(("g5.xlarge", "us-east-1a", second, price) for second, price in prices.items()))
    facts = engine.Facts([instance], {"i-1": shape}, book, T0 + seconds)
    with databases.opened(threads=1) as database:
        database.table("attempts", COLUMNS, [stored(attempt) for attempt in attempts])
        engine.charge(database, facts, Window(T0, T0 + max(seconds, 3600)), Policy())
        assert database.rows("SELECT * FROM hard") == []
        return {charge.attempt: charge.micro for charge in engine.charges(database, [instance])}


@pytest.mark.parametrize(("usd", "micro"), [("0.00003", 0), ("0.00009", 2), ("0.00015", 2)])
def test_half_a_micro_dollar_goes_to_the_even_one(usd, micro):
    attempt = an_attempt(started=T0, ended=T0 + 60)
    assert amounts(usd, attempt) == {1: micro}


def test_of_equal_remainders_the_earlier_charge_gets_what_is_left():
    earlier = an_attempt(9, started=T0, ended=T0 + 30)
    later = an_attempt(1, started=T0 + 30, ended=T0 + 60)
    assert amounts("0.00006", later, earlier) == {9: 1, 1: 0}


def test_weights_that_no_64_bits_hold_are_added_in_128():
    """Two prices have no common measure.

    The first hour's weight is 3.6e21.
    """
    prices = {T0 - 1: "1000000.000000000001", T0 + 3600: "2000000.000000000003"}
    attempts = (
        an_attempt(1, started=T0, ended=T0 + 3600),
        an_attempt(2, started=T0 + 3600, ended=T0 + 7200),
    )
    assert amounts(prices, *attempts, seconds=7200) == {1: 10**12, 2: 2 * 10**12}


def test_seconds_of_parts_that_no_64_bits_hold_are_added_in_128():
    """Three shares have no common denominator.

    All seconds of all parts are 1.4e19.
    """
    sizes = (Tres(cpus=2), Tres(memory_mib=3), Tres(gpus=5))
    attempts = [
        an_attempt(key, started=T0, ended=T0 + 14_400, tres=tres)
        for key, tres in enumerate(sizes, start=1)
    ]
    found = amounts("0.36", *attempts, seconds=14_400, shape=Shape(99_991, 99_989, 99_971))
    # 28.80, 43.20, 72.02 and 1,439,855.97: what is left goes to the first and the last.
    assert found == {1: 29, 2: 43, 3: 72, None: 1_439_856}
