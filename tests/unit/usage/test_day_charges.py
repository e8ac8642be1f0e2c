"""A closed day's amounts as whole numbers, and as text where these are too large."""

from fractions import Fraction

import pytest

from tests.unit.accounting.samples import T0, an_instance
from toolkit.accounting.allocation import Window
from toolkit.accounting.charges import ChargePrices, Component
from toolkit.accounting.instances import Kind
from toolkit.accounting.parts import InstanceParts, Part
from toolkit.accounting.report import Key
from toolkit.accounting.segments import Segment, report_of
from toolkit.prices import PriceSource
from toolkit.usage import closed_store, database as databases, day_charges, day_details
from toolkit.usage.closed_report import split, summed_report
from toolkit.usage.closed_store import ClosedDay, ClosedDays
from toolkit.usage.cluster_store import ClusterStore

DAY = 86_400
MIDNIGHT = T0 // DAY * DAY
PRICES = ChargePrices((PriceSource.CATALOGUE,), T0)


def closed(store, parts):
    """Write a day of one instance; return the closed days."""
    item = InstanceParts("i-1", Kind.INSTANCE, 60, tuple(parts), ())
    segment = Segment(
        Window(MIDNIGHT, MIDNIGHT + DAY), (item,), {"i-1": an_instance()}, {}, first_cost=MIDNIGHT
    )
    rows = day_charges.rows(
        segment,
        day_charges.amounts(segment),
        day_charges.Closing(1, T0, "demo", "estimated"),
        day_charges.CHARGE,
    )
    with store.changing() as temporary, databases.opened(temporary) as database:
        files = closed_store.DayFiles(database, store.folder, temporary)
        charges = files.write_charges(MIDNIGHT, 1, rows)
        details = files.write_details(MIDNIGHT, 1, day_details.rows(segment))
    day = ClosedDay(
        (charges,), details, 1, T0, MIDNIGHT + DAY, 0, "", segment.cost_policy.payers(), MIDNIGHT
    )
    return ClosedDays(1, {MIDNIGHT: day})


@pytest.mark.parametrize(
    "micro", [Fraction(100, 3), Fraction(445_400, 3600 * 7 * 96), Fraction(1, 10**30 + 57)]
)
def test_an_amount_is_read_back_as_it_was_written(tmp_path, micro):
    store = ClusterStore(tmp_path)
    parts = [
        Part(Component.HEAD, None, True, micro, Fraction(60, 7), PRICES),
        Part(Component.IDLE, None, True, Fraction(1, 2), Fraction(1), PRICES),
    ]
    known = closed(store, parts)
    (segment,) = closed_store.segments(store, known, [MIDNIGHT])
    assert segment.parts[0].parts == tuple(parts)
    window = Window(MIDNIGHT, MIDNIGHT + DAY)
    with databases.opened() as database:
        report = summed_report(
            database, store, known, split(known, window, costs_always=True), now=T0, cluster="demo"
        )
        assert report.gross == round(micro + Fraction(1, 2))
        exact = report_of("demo", [segment], T0, segment.cost_policy)
        assert report.components() == exact.components()
        assert [row.micro for row in report.groups([Key.USER])] == [
            row.micro for row in exact.groups([Key.USER])
        ]
