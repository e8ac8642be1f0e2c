"""Laws of what CloudWatch measured: days add up, and so does any other part of the time."""

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from hypothesis import event, given, settings, strategies as st

from tests.unit.accounting.samples import a_book, an_instance
from tests.unit.usage.record_store import lines
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build, segment
from toolkit.accounting.metrics import Metrics, StoredBytes
from toolkit.accounting.segments import report_of
from toolkit.accounting.storage import Infrastructure, Sizes, UnitPrices

DAY, MIB = 86_400, 2**20
DAYS = 4
END = DAYS * DAY

sizes = st.builds(StoredBytes, st.integers(0, 2**45), st.sampled_from([0, 0, 0, 7]), st.just(-DAY))
measured = st.builds(
    Metrics,
    st.dictionaries(st.sampled_from([day * DAY for day in range(-2, DAYS)]), sizes),
    st.dictionaries(st.sampled_from([day * DAY for day in range(DAYS)]), st.integers(0, 2**45)),
)
lives = st.tuples(st.integers(-DAY, 2 * DAY), st.none() | st.integers(2 * DAY, END))
"""The launch and the end of the head node."""


def facts_of(metrics, life, price):
    """Return the facts of a cluster that has a head alone.

    Every price is the same.
    """
    usd = Decimal(price).scaleb(-12)
    launched, ended = life
    return {
        "attempts": [],
        "instances": [
            an_instance(
                "i-head", node="head", pool="head", spot=False, launched=launched, ended=ended
            )
        ],
        "shapes": {},
        "book": a_book(),
        "now": 2 * END,
        "infrastructure": Infrastructure(
            Sizes(1200, 50, 100, 40, 30, has_nat=True), UnitPrices(1, usd, usd, usd, usd, usd, usd)
        ),
        "metrics": metrics,
    }


@given(measured, lives, st.integers(1, 10**12), st.lists(st.integers(1, END - 1), max_size=6))
@settings(max_examples=100, deadline=None)
def test_any_parts_of_the_time_have_the_charges_of_the_whole(metrics, life, price, cuts):
    facts = facts_of(metrics, life, price)
    exact = build(cluster="demo", window=Window(0, END), **facts)
    segments = [
        segment(window=Window(low, high), **facts)
        for low, high in pairwise(sorted({0, *cuts, END}))
    ]
    event(f"unknown: {exact.unknown_costs}")
    assert lines(report_of("demo", segments, 2 * END, exact.cost_policy)) == lines(exact)


@given(measured, lives)
@settings(max_examples=100, deadline=None)
def test_all_bytes_of_a_day_are_charged_to_the_clusters_time_on_it(metrics, life):
    """Count dollars: at one a GB there are as many as GiB.

    Days on which nobody was there have none.
    """
    made = segment(window=Window(0, END), **facts_of(metrics, life, 10**12))
    launched, ended = life
    passed = sum(
        size // MIB
        for day, size in metrics.passed.items()
        if launched < day + DAY and (ended is None or day < ended)
    )
    known = [
        part.micro
        for item in made.parts
        for part in item.parts
        if item.instance_id == "NAT traffic" and part.price_known
    ]
    assert sum(known, Fraction(0)) == Fraction(passed * 10**6, 1024)
