"""Prices of contracts come before the catalogue's, and what is paid in advance before both."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.unit.accounting.samples import T0, a_book
from toolkit.prices import Contracts, Life, PriceQuery, PriceSource, cover
from toolkit.prices.contracts import (
    Match,
    NegotiatedPrice,
    RackRate,
    Reservation,
    SavingsPlan,
    Term,
    block_rate,
)

AS_OF = T0 - 99
HOUR = 3600


def a_query(instance_id="i-1", **changes):
    values = {
        "instance_type": "g5.xlarge",  # 1.006 dollars an hour by the catalogue
        "zone": "us-east-1a",
        "spot": False,
        "tag_price": None,
        "launched_at": T0,
        "instance_id": instance_id,
        "pool": "gpu",
    }
    return PriceQuery(**(values | changes))


def a_book_with(**contracts):
    return replace(a_book(), contracts=Contracts(as_of=AS_OF, **contracts))


def priced(spans):
    return [
        (
            span.start - T0,
            span.end - T0,
            f"{span.price.usd_per_hour.normalize():f}",
            span.price.source.value,
        )
        for span in spans
    ]


def a_reservation(**changes):
    values = {
        "name": "reserved",
        "source": PriceSource.RESERVED,
        "match": Match("g5.xlarge"),
        "count": 1,
        "usd_per_hour": Decimal("0.60"),
        "term": Term(T0, T0 + 2 * HOUR),
    }
    return Reservation(**(values | changes))


def a_plan(**changes):
    values = {
        "name": "plan",
        "match": Match(),
        "usd_per_hour": Decimal("0.9"),
        "term": Term(T0, T0 + 2 * HOUR),
        "rates": {"g5.xlarge": Decimal("0.6")},
    }
    return SavingsPlan(**(values | changes))


def covered(book, *lives, since=T0, until=T0 + 2 * HOUR):
    coverage = cover(book, lives, since, until)
    spans = {key: priced(own) for key, own in coverage.spans.items()}
    return spans, [(item.name, item.usd) for item in coverage.unused]


def test_a_negotiated_price_comes_before_the_catalogues_with_its_own_day():
    book = a_book_with(on_demand=(NegotiatedPrice(Decimal("0.83"), instance_type="g5.xlarge"),))
    (span,) = book.spans(a_query(), T0, T0 + 60)
    assert (span.price.source, span.price.as_of) == (PriceSource.CONTRACT, AS_OF)
    assert span.price.usd_per_hour == Decimal("0.83")


def test_a_discount_is_taken_off_the_catalogues_price_and_keeps_its_day():
    book = a_book_with(on_demand=(NegotiatedPrice(discount_percent=Decimal("7.5")),))
    (span,) = book.spans(a_query(), T0, T0 + 60)
    assert span.price.usd_per_hour == Decimal("0.93055")  # 1.006 x 0.925
    assert (span.price.source, span.price.as_of) == (PriceSource.DISCOUNT, book.catalogue.as_of)


def test_the_price_of_a_type_comes_before_a_discount_on_everything():
    book = a_book_with(
        on_demand=(
            NegotiatedPrice(discount_percent=Decimal(50)),
            NegotiatedPrice(Decimal("0.83"), instance_type="g5.xlarge"),
        )
    )
    assert priced(book.spans(a_query(), T0, T0 + 9)) == [(0, 9, "0.83", "contract")]


def test_a_negotiated_price_holds_within_its_time_and_region():
    prices = [
        NegotiatedPrice(Decimal("0.8"), instance_type="g5.xlarge", term=Term(T0 + 10, T0 + 20)),
        NegotiatedPrice(Decimal("0.1"), instance_type="g5.xlarge", region="eu-west-1"),
    ]
    book = a_book_with(on_demand=tuple(prices))
    assert priced(book.spans(a_query(), T0, T0 + 30)) == [
        (0, 10, "1.006", "list"),
        (10, 20, "0.8", "contract"),
        (20, 30, "1.006", "list"),
    ]


def test_a_discount_on_a_type_without_a_known_price_is_no_price():
    book = a_book_with(on_demand=(NegotiatedPrice(discount_percent=Decimal(50)),))
    (span,) = book.spans(a_query(instance_type="x9.huge"), T0, T0 + 9)
    assert span.price.source is PriceSource.UNKNOWN


def test_a_contract_says_nothing_about_spot():
    book = a_book_with(on_demand=(NegotiatedPrice(Decimal("0.8"), instance_type="g5.xlarge"),))
    (span,) = book.spans(a_query(spot=True), T0, T0 + 9)
    assert span.price.source is PriceSource.HISTORY


def test_a_reservation_pays_for_the_instance_that_was_launched_first():
    """Second instance: uncovered until the first ends after an hour, then covered."""
    book = a_book_with(reservations=(a_reservation(),))
    first = Life(a_query("i-1"), T0, T0 + HOUR)
    second = Life(a_query("i-2", launched_at=T0 + 60), T0 + 60, T0 + 2 * HOUR)
    spans, unused = covered(book, second, first)
    assert spans == {
        "i-1": [(0, HOUR, "0.6", "reserved")],
        "i-2": [(HOUR, 2 * HOUR, "0.6", "reserved")],
    }
    assert unused == []


def test_the_rest_of_a_reservation_is_paid_without_an_instance():
    """Pay 2.40 for two instances; one had 0.30 of it."""
    book = a_book_with(reservations=(a_reservation(count=2),))
    spans, unused = covered(book, Life(a_query(), T0, T0 + 1800))
    assert spans == {"i-1": [(0, 1800, "0.6", "reserved")]}
    assert unused == [("reserved", Fraction(21, 10))]


def test_a_book_gives_the_paid_spans_before_the_list_price():
    coverage = cover(
        a_book_with(reservations=(a_reservation(),)),
        [Life(a_query(), T0 - 60, T0 + 60)],
        T0 - HOUR,
        T0 + HOUR,
    )
    book = replace(a_book(), fixed=coverage.spans)
    assert priced(book.spans(a_query(), T0 - 60, T0 + 60)) == [
        (-60, 0, "1.006", "list"),
        (0, 60, "0.6", "reserved"),
    ]


@pytest.mark.parametrize(
    "query",
    [
        a_query(spot=True),
        a_query(instance_type="g5.2xlarge"),
    ],
)
def test_a_reservation_pays_for_no_other_instance(query):
    book = a_book_with(reservations=(a_reservation(),))
    assert covered(book, Life(query, T0, T0 + 60))[0] == {}


def test_a_reservation_of_a_family_pays_for_its_sizes():
    book = a_book_with(reservations=(a_reservation(match=Match(family="g5")),))
    query = a_query(instance_type="g5.48xlarge")
    assert covered(book, Life(query, T0, T0 + 60))[0] == {"i-1": [(0, 60, "0.6", "reserved")]}


def test_a_capacity_block_is_not_charged_at_list_and_comes_to_its_total():
    """Pay 9.6 for two instances and hours: 2.4 an hour."""
    term = Term(T0, T0 + 2 * HOUR)
    rate = block_rate(Decimal("9.6"), 2, term)
    assert rate == Decimal("2.4")
    block = a_reservation(
        source=PriceSource.CAPACITY_BLOCK,
        match=Match(pools=frozenset({("gpu", "", "us-east-1a")})),
        usd_per_hour=rate,
        count=2,
        term=term,
    )
    lives = [Life(a_query("i-1"), T0, T0 + HOUR), Life(a_query("i-2"), T0, T0 + 2 * HOUR)]
    other = Life(a_query("i-3", pool="cpu"), T0, T0 + HOUR)
    spans, unused = covered(a_book_with(reservations=(block,)), *lives, other)
    assert spans == {
        "i-1": [(0, HOUR, "2.4", "capacity-block")],
        "i-2": [(0, 2 * HOUR, "2.4", "capacity-block")],
    }
    assert unused == [("reserved", Fraction(24, 10))]
    assert Fraction(24, 10) * 3 + unused[0][1] == Fraction(96, 10)


def test_a_savings_plan_pays_as_far_as_it_goes_and_the_rest_is_on_demand():
    """Pay 0.6 for the first, and half of the second.

    The other half of the second is on demand: 0.3 + 0.503.
    """
    lives = [Life(a_query("i-1"), T0, T0 + HOUR), Life(a_query("i-2"), T0, T0 + HOUR)]
    spans, unused = covered(a_book_with(savings_plans=(a_plan(),)), *lives)
    assert spans == {
        "i-1": [(0, HOUR, "0.6", "savings-plan")],
        "i-2": [(0, HOUR, "0.803", "savings-plan")],
    }
    assert unused == [("plan", Fraction(9, 10))]  # of the second hour


def test_a_savings_plan_pays_for_its_largest_discount_first():
    plan = a_plan(
        usd_per_hour=Decimal("0.5"),
        rates={"g5.xlarge": Decimal("0.9"), "m7i.large": Decimal("0.0504")},
    )
    lives = [
        Life(a_query("i-1"), T0, T0 + HOUR),
        Life(a_query("i-2", instance_type="m7i.large", launched_at=T0 + 1), T0 + 1, T0 + HOUR),
    ]
    spans, _ = covered(a_book_with(savings_plans=(plan,)), *lives)
    assert spans["i-2"] == [(1, HOUR, "0.0504", "savings-plan")]
    assert [span[:2] for span in spans["i-1"]] == [(0, 1), (1, HOUR)]


def test_a_plan_by_discount_does_not_pay_for_a_type_without_a_price():
    plan = a_plan(rates={}, discount_percent=Decimal(20))
    query = a_query(instance_type="x9.huge")
    assert covered(a_book_with(savings_plans=(plan,)), Life(query, T0, T0 + 60))[0] == {}
    spans, _ = covered(a_book_with(savings_plans=(plan,)), Life(a_query(), T0, T0 + 60))
    assert spans == {"i-1": [(0, 60, "0.8048", "savings-plan")]}


def test_two_windows_share_a_commitment_as_the_one_over_both():
    book = a_book_with(reservations=(a_reservation(count=2),), savings_plans=(a_plan(),))
    lives = [
        Life(a_query(f"i-{n}", launched_at=T0 + 700 * n), T0 + 700 * n, T0 + 900 * n + 600)
        for n in range(6)
    ]
    whole = cover(book, lives, T0, T0 + 2 * HOUR)
    halves = [cover(book, lives, T0, T0 + 3000), cover(book, lives, T0 + 3000, T0 + 2 * HOUR)]

    def usd(coverage):
        spans = [span for own in coverage.spans.values() for span in own]
        paid = sum(Fraction(s.price.usd_per_hour) * (s.end - s.start) for s in spans) / HOUR
        return paid, sum(item.usd for item in coverage.unused)

    parts = [usd(half) for half in halves]
    assert usd(whole) == (parts[0][0] + parts[1][0], parts[0][1] + parts[1][1])


def test_the_rate_of_a_rack_is_its_year_over_its_expected_hours():
    """Divide 6000, 8760 kWh at 0.30, and 1000 by 4380 hours."""
    rate = RackRate(
        capex_usd=Decimal(30_000),
        years=Decimal(5),
        target_utilisation=Decimal("0.5"),
        watts=Decimal(1000),
        usd_per_kwh=Decimal("0.30"),
        staff_usd_per_year=Decimal(1000),
    )
    assert rate.usd_per_hour == Decimal("2.198173515981")  # 9628 / 4380
