"""Law of closed days: written, read back and added up, they are the exact engine's report."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings, strategies as st

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
)
from tests.property.usage.test_engines_agree import Busy
from tests.unit.usage.record_store import lines
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.attempt_instances import match_instances
from toolkit.accounting.build import build, segment
from toolkit.accounting.lives import billed_lives
from toolkit.accounting.report import Key
from toolkit.accounting.segments import report_of
from toolkit.prices import Contracts, SpotHistory
from toolkit.usage import closed_store, day_charges, day_details
from toolkit.usage.closed_store import ClosedDay, ClosedDays
from toolkit.usage.cluster_store import ClusterStore

DAY = 86_400
SLOWER = 43
"""The histories of seconds become those of four days."""
DAYS = 4
NOW = END + 6000


def slower(value):
    if isinstance(value, tuple):
        return tuple(map(slower, value))
    return value if value is None else value * SLOWER


def in_days(item):
    times = ("launched", "ended", "running", "stops", "submitted", "started")
    return replace(
        item, **{name: slower(getattr(item, name)) for name in times if hasattr(item, name)}
    )


def book_in_days(book, agreed):
    points = [
        (kind, zone, second * SLOWER, usd)
        for (kind, zone), changes in book.history.changes.items()
        for second, usd in changes
    ]
    terms = {
        name: tuple(
            replace(item, term=replace(item.term, since=slower(item.term.since),
                                       until=slower(item.term.until)))
            for item in getattr(agreed, name)
        )
        for name in ("reservations", "savings_plans")
    }  # fmt: skip
    return replace(
        book, history=SpotHistory.from_points(points), contracts=replace(agreed, **terms)
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ClusterStore(tmp_path_factory.mktemp("closed"))


def closed(store, segments):
    """Write segments as closed days, some wrong at first; read them."""
    days = {}
    for number, made in enumerate(segments, start=1):
        day = made.window.since
        found = day_charges.amounts(made)
        names = sorted({key[0] for key in found})
        dropped = set(names[: random.Random(day).randrange(len(names) + 1)])  # noqa: S311
        first = {key: amount for key, amount in found.items() if key[0] not in dropped}
        charges = []
        with store.changing() as temporary:
            for kind, rows in (
                (day_charges.CHARGE, first),
                (day_charges.CORRECTION, day_charges.differences(first, found)),
            ):
                closing = day_charges.Closing(10 * number + len(charges), 1, "demo", "estimated")
                files = closed_store.DayFiles(store, temporary, day, closing.number)
                charges.append(files.write_charges(day_charges.rows(made, rows, closing, kind)))
            details = files.write_details(day_details.rows(made))
        days[day] = ClosedDay(
            charges=tuple(charges), details=details, closing=number, closed_at=1, reach=NOW,
            micro=day_charges.net(found), settings="", policy=made.cost_policy.payers(),
            first_cost=made.first_cost,
        )  # fmt: skip
    return closed_store.segments(store, ClosedDays(1, days), sorted(days))


@given(
    stopped_instances(),
    attempts(),
    books(),
    st.tuples(st.just(Contracts()) | contracts(), policies, prices),
)
@settings(max_examples=15, deadline=None)
def test_closed_days_are_the_report_of_the_exact_engine(store, all_instances, tries, book, drawn):
    agreed, payers, rack_price = drawn
    book = book_in_days(book, agreed)
    all_instances = [in_days(item) for item in all_instances]
    tries = [
        replace(in_days(item), comments=f"toolkit:checkpoint={(item.started or 0) * SLOWER}")
        for item in tries
    ]
    more = {"cost_policy": payers, "racks": rack(rack_price)}
    window = Window(0, DAYS * DAY)
    segments = [
        segment(
            attempts=tries,
            instances=all_instances,
            shapes={instance.instance_id: SHAPE for instance in all_instances},
            book=book,
            window=Window(day, day + DAY),
            now=NOW,
            policy=Policy(),
            matched_until=window.until,
            **more,
        )
        for day in range(0, window.until, DAY)
    ]
    exact = report(all_instances, tries, book, window, **more)
    made = report_of("demo", closed(store, segments), NOW, payers)
    assert lines(made) == lines(exact)
    assert (made.gross, made.refund) == (exact.gross, exact.refund)
    assert made.components() == exact.components()
    assert made.component_prices == exact.component_prices
    for key in (Key.ACCOUNT, Key.USER):
        assert [(row.key_values, dict(row.micro)) for row in made.groups([key])] == [
            (row.key_values, dict(row.micro)) for row in exact.groups([key])
        ]
    assert {cost.instance_id: cost.days for cost in made.costs} == {
        cost.instance_id: cost.days for cost in exact.costs
    }


def has_equal_ends(busy):
    """Return whether a wait and a usage of an instance end together.

    Behind both, the exact engine and SQL give idle time to the one that they saw later. Those from
    before a window are seen at once, so there the window decides (ADR 42).
    """
    lives = billed_lives(busy.facts.instances, busy.attempts, busy.facts.now)
    match = match_instances(busy.attempts, lives, busy.facts.shapes, busy.facts.now)
    return any(
        {usage.end for usage in match.usages.get(name, ())} & {wait.end for wait in waits}
        for name, waits in match.waits.items()
    )


@given(st.integers(0, 2**32), st.lists(st.integers(1, 14_000), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_segments_of_a_busy_cluster_have_the_charges_of_one_window(seed, cuts):
    """Cut where nodes idle, boot, share and wait."""
    busy = Busy(seed)
    assume(not has_equal_ends(busy))
    window = busy.window
    inner = sorted({cut for cut in cuts if window.since < cut < window.until})
    facts = {
        "attempts": busy.attempts,
        "instances": busy.facts.instances,
        "shapes": busy.facts.shapes,
        "book": busy.facts.book,
        "now": busy.facts.now,
    }
    segments = [
        segment(window=Window(low, high), matched_until=window.until, **facts)
        for low, high in pairwise((window.since, *inner, window.until))
    ]
    exact = build(cluster="demo", window=window, **facts)
    made = report_of("demo", segments, busy.facts.now, exact.cost_policy)
    assert lines(made) == lines(exact)
