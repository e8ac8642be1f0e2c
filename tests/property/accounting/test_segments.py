"""Law of segments: a report of several windows is the report of the one over all of them.

Closed days are segments, so this is what makes them equal to the exact engine.
"""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings, strategies as st

from tests.property.accounting.test_conservation import (
    END,
    SHAPE,
    attempts,
    books,
    contracts,
    policies,
    prices,
    rack,
    report,
    stopped_instances,
    windows,
)
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.build import segment
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.segments import report_of
from toolkit.prices import Contracts

NOW = END + 6000


def of_segments(all_instances, tries, book, window, *, cuts, **more):
    inner = sorted({cut for cut in cuts if window.since < cut < window.until})
    segments = [
        segment(
            attempts=tries,
            instances=all_instances,
            shapes={instance.instance_id: SHAPE for instance in all_instances},
            book=book,
            window=Window(low, high),
            now=NOW,
            policy=Policy(),
            matched_until=window.until,
            **more,
        )
        for low, high in pairwise((window.since, *inner, window.until))
    ]
    return report_of("demo", segments, NOW, more.get("cost_policy", CostPolicy()))


def lines(made):
    """Return all that a report's sums are made of, to the micro-dollar."""
    return {
        (charge.component, charge.instance_id, charge.attempt, charge.price_known): (
            charge.micro,
            charge.seconds,
            charge.prices,
        )
        for charge in made.charges()
    }


@given(
    stopped_instances(),
    attempts(),
    books(),
    st.tuples(windows(), st.lists(st.integers(0, NOW), max_size=4)),
    st.tuples(st.just(Contracts()) | contracts(), policies, prices),
)
@settings(max_examples=200, deadline=None)
def test_segments_have_the_charges_of_one_window(all_instances, tries, book, times, drawn):
    window, cuts = times
    agreed, payers, rack_price = drawn
    book = replace(book, contracts=agreed)
    more = {"cost_policy": payers, "racks": rack(rack_price)}
    whole = report(all_instances, tries, book, window, **more)
    parts = of_segments(all_instances, tries, book, window, cuts=cuts, **more)
    assert lines(parts) == lines(whole)
    assert (parts.gross, parts.refund) == (whole.gross, whole.refund)
    assert [cost.days for cost in parts.costs] == [
        next(cost.days for cost in whole.costs if cost.instance_id == own.instance_id)
        for own in parts.costs
    ]
    assert [cost.seconds for cost in parts.costs] == [
        next(cost.seconds for cost in whole.costs if cost.instance_id == own.instance_id)
        for own in parts.costs
    ]
