"""Rounding by SQL, where the amounts are exactly between two micro-dollars."""

import pytest

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from tests.unit.usage.samples import stored
from toolkit.accounting.allocation import Policy, Window
from toolkit.usage import database as databases, engine
from toolkit.usage.dump_columns import COLUMNS


def amounts(usd, *attempts):
    """Return each attempt's micro-dollars on an instance of one minute."""
    instance = an_instance(ended=T0 + 60)
    book = a_book(("g5.xlarge", "us-east-1a", T0 - 1, usd))
    facts = engine.Facts([instance], {"i-1": G5}, book, T0 + 60)
    with databases.opened(threads=1) as database:
        database.table("attempts", COLUMNS, [stored(attempt) for attempt in attempts])
        engine.charge(database, facts, Window(T0, T0 + 3600), Policy())
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
