"""Law of closed days: written, read back and added up, they are the exact engine's report."""

import random
import shutil
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import event, given, settings, strategies as st

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
from tests.property.accounting.test_measured_amounts import facts_of, lives, measured
from tests.property.usage.test_engines_agree import Busy
from tests.unit.usage.record_store import lines
from toolkit.accounting import export
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.attempt_names import Names, with_names
from toolkit.accounting.build import build, segment
from toolkit.accounting.charges import Component
from toolkit.accounting.cost_policy import Payer
from toolkit.accounting.report import PRINTED, Key
from toolkit.accounting.segments import report_of
from toolkit.prices import Contracts, SpotHistory
from toolkit.usage import (
    closed_store,
    database as databases,
    day_charges,
    day_details,
    month_sums,
)
from toolkit.usage.closed_report import split, summed_report
from toolkit.usage.closed_store import ClosedDay, ClosedDays
from toolkit.usage.closed_sums import keep_month
from toolkit.usage.cluster_store import ClusterStore
from toolkit.usage.summed_report import SummedReport, with_projects

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
    times = ("launched", "ended", "running", "stops", "submitted", "eligible", "started")
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
    """Write segments as closed days, some wrong at first."""
    days = {}
    for number, made in enumerate(segments, start=1):
        day = made.window.since
        found = day_charges.amounts(made)
        names = sorted({key[0] for key in found})
        dropped = set(names[: random.Random(day).randrange(len(names) + 1)])  # noqa: S311
        first = {key: amount for key, amount in found.items() if key[0] not in dropped}
        charges = []
        with store.changing() as temporary, databases.opened(temporary, threads=1) as database:
            files = closed_store.DayFiles(database, store.folder, temporary)
            for kind, rows in (
                (day_charges.CHARGE, first),
                (day_charges.CORRECTION, day_charges.differences(first, found)),
            ):
                closing = day_charges.Closing(10 * number + len(charges), 1, "demo", "estimated")
                rows_of_day = day_charges.rows(made, rows, closing, kind)
                charges.append(files.write_charges(day, closing.number, rows_of_day))
            details = files.write_details(day, number, day_details.rows(made))
        days[day] = ClosedDay(
            charges=tuple(charges), details=details, closing=number, closed_at=1, reach=NOW,
            micro=day_charges.net(found), settings="", policy=made.cost_policy.payers(),
            first_cost=made.first_cost,
        )  # fmt: skip
    return ClosedDays(1, days)


def of_segments(store, known, policy):
    """Return the report that adds closed days up charge by charge."""
    return report_of("demo", closed_store.segments(store, known, sorted(known.days)), NOW, policy)


@contextmanager
def by_sums(store, known, *, kept=False):
    """Yield the report by sums, made or kept; or None."""
    days = [known.days[day] for day in sorted(known.days)]
    folder = month_sums.folder_of(store.folder, days, DAYS * DAY)
    shutil.rmtree(folder.parent, ignore_errors=True)
    if kept:
        with store.changing() as temporary, databases.opened(threads=1) as database:
            keep_month(database, store.folder, days, DAYS * DAY, temporary)
    event(f"a month's sums: {folder.is_dir()}")
    parts = split(known, Window(0, DAYS * DAY), costs_always=True)
    with databases.opened(threads=1) as database:
        yield summed_report(database, store, known, parts, now=NOW, cluster="demo")


def amounts(made):
    """Return all lines, without the seconds of unused commitments.

    A day on which all of a commitment is used has no line of it, and so no seconds.
    """
    return [
        (*row[:-2], None, row[-1]) if row[0] == Component.COMMITMENT else row for row in lines(made)
    ]


def renamed(made):
    """Return rows by names that the report's sums don't have."""
    projects = {name: f"project of {name}" for name in ("", "a", "b")}
    named = with_projects(made, projects)
    if isinstance(made, SummedReport):
        assert named.groups([Key.USER]) == made.groups([Key.USER])
    nobody = with_names(named, Names.NONE, "")
    return [
        named.groups([Key.PROJECT, Key.POOL]),
        nobody.groups([Key.USER]),
        export.as_csv(nobody),
    ]


def all_of(made):
    """Return all that a report shows of its sums."""
    return {
        "gross": made.gross,
        "refund": made.refund,
        "unknown": (made.unknown_costs, made.unknown_components),
        "components": made.components(),
        "prices": made.component_prices,
        "sources": made.priced_by(lambda source, as_of: f"{source} {as_of // DAY}"),
        "kinds": made.kinds,
        "racks": (made.has_racks, made.racks_net),
        "number": len(made.costs),
        "dearest": [made.dearest(count) for count in (0, 2, PRINTED, 99)],
        "groups": [
            [
                (row.key_values, row.jobs, row.attempts, row.seconds, [*row.micro.items()],
                 row.unknown)
                for row in made.groups(keys)
            ]
            for keys in ([Key.ACCOUNT], [Key.USER, Key.JOB], [Key.ACCOUNT, Key.USER])
        ],
        "group prices": [
            {row.key_values: row.prices for row in made.groups(keys, with_prices=True)}
            for keys in ([Key.ACCOUNT], [Key.USER, Key.JOB], [Key.POOL])
        ],
        "notes": (made.notes, made.set_aside, made.jobs_without_cost),
        "window": made.window,
        "lines": lines(made),
        "renamed": renamed(made),
        "costs": [
            (cost, [charge.prices for charge in cost.charges], cost.prices) for cost in made.costs
        ],
        "csv": export.as_csv(made),
        "json": export.as_json(replace(made, closed=None), [Key.PARTITION, Key.TYPE]),
        "of": (dict(made.instances), dict(made.attempts)),
    }  # fmt: skip


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
    known = closed(store, segments)
    made = of_segments(store, known, payers)
    assert amounts(made) == amounts(exact)
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
    with by_sums(store, known) as summed:
        event(f"by sums: {summed is not None}")
        assert (summed is None) == (Payer.SHARED in payers.payers().values())
        assert summed is None or all_of(summed) == all_of(made)
    with by_sums(store, known, kept=True) as summed:
        assert summed is None or all_of(summed) == all_of(made)


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_sums_of_closed_days_are_those_of_their_charges(store, seed):
    """Close a busy cluster's days.

    It has shares, unknown prices, refunds, idle time over midnight, corrections.
    """
    busy = Busy(seed)
    facts = {
        "attempts": [in_days(item) for item in busy.attempts],
        "instances": [in_days(item) for item in busy.facts.instances],
        "shapes": busy.facts.shapes,
        "book": book_in_days(busy.facts.book, Contracts()),
        "now": NOW * SLOWER,
    }
    window = Window(0, DAYS * DAY)
    segments = [
        segment(window=Window(day, day + DAY), matched_until=window.until, **facts)
        for day in range(0, window.until, DAY)
    ]
    known = closed(store, segments)
    made = of_segments(store, known, segments[0].cost_policy)
    assert lines(made) == lines(build(cluster="demo", window=window, **facts))
    for kept in (False, True):
        with by_sums(store, known, kept=kept) as summed:
            assert all_of(summed) == all_of(made)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 14_000), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_segments_of_a_busy_cluster_have_the_charges_of_one_window(seed, cuts):
    """Cut where nodes idle, boot, share and wait."""
    busy = Busy(seed)
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


@given(measured, lives, st.integers(1, 10**12))
@settings(max_examples=8, deadline=None)
def test_closed_days_have_the_sums_of_what_was_measured(store, metrics, life, price):
    facts = {**facts_of(metrics, life, price), "now": NOW * SLOWER}
    exact = build(cluster="demo", window=Window(0, DAYS * DAY), **facts)
    days = [segment(window=Window(day * DAY, (day + 1) * DAY), **facts) for day in range(DAYS)]
    known = closed(store, days)
    made = of_segments(store, known, exact.cost_policy)
    assert lines(made) == lines(exact)
    assert made.components() == exact.components()
    event(f"unknown: {exact.unknown_costs}")
    for kept in (False, True):
        with by_sums(store, known, kept=kept) as summed:
            assert all_of(summed) == all_of(made)
