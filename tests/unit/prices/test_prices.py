"""Prices name their source and age, and no fallback is silent."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.unit.accounting.samples import T0, a_book
from toolkit.prices import (
    Catalogue,
    PriceBook,
    PriceQuery,
    PriceSource,
    SpotHistory,
    parse_usd,
    read_history,
)


def a_query(**changes):
    values = {
        "instance_type": "g5.xlarge",
        "zone": "us-east-1a",
        "spot": True,
        "tag_price": Decimal("0.4024"),
        "launched_at": T0,
    }
    return PriceQuery(**(values | changes))


def sources(spans):
    return [(span.start - T0, span.end - T0, span.price.source.value) for span in spans]


def test_the_catalogue_has_a_date_a_region_and_exact_prices():
    catalogue = Catalogue.bundled()
    assert datetime.fromtimestamp(catalogue.as_of, UTC).year == 2026
    assert catalogue.prices["g5.xlarge"] == Decimal("1.006")
    assert catalogue.prices["p6-b300.48xlarge"] == Decimal("142.416")
    assert "p5e.48xlarge" not in catalogue.prices
    assert catalogue.shapes["p5e.48xlarge"].gpus == 8
    for name in ("m7i.large", "c7i.large", "g4dn.metal"):
        assert catalogue.price(name, "us-east-1") is not None


def test_every_instance_type_of_the_catalogue_has_a_shape():
    for name, shape in Catalogue.bundled().shapes.items():
        assert shape.cpus > 0, name
        assert shape.memory_mib > 0, name


def test_the_catalogue_has_no_prices_for_another_region():
    assert Catalogue.bundled().price("g5.xlarge", "eu-west-1") is None


def test_a_spot_price_is_valid_until_the_next_change():
    history = a_book(
        ("g5.xlarge", "us-east-1a", T0 + 50, "0.5"),
        ("g5.xlarge", "us-east-1a", T0 - 50, "0.4"),
        ("g5.xlarge", "us-east-1a", T0 - 90, "0.3"),
    ).history
    spans = history.spans("g5.xlarge", "us-east-1a", T0, T0 + 100)
    assert [(s.start - T0, s.end - T0, s.price.usd_per_hour) for s in spans] == [
        (0, 50, Decimal("0.4")),
        (50, 100, Decimal("0.5")),
    ]


def test_time_before_the_first_known_spot_price_has_the_price_tag():
    book = a_book(("g5.xlarge", "us-east-1a", T0 + 60, "0.5"))
    assert sources(book.spans(a_query(), T0, T0 + 100)) == [
        (0, 60, "believed"),
        (60, 100, "history"),
    ]


def test_a_spot_instance_at_the_on_demand_price_is_a_guess():
    book = PriceBook("us-east-1", Catalogue.bundled(), SpotHistory())
    (span,) = book.spans(a_query(tag_price=None), T0, T0 + 100)
    assert span.price.source is PriceSource.CATALOGUE_FOR_SPOT
    assert span.price.source.is_guess
    assert span.price.usd_per_hour == Decimal("1.006")


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        ({"spot": False}, PriceSource.CATALOGUE),
        ({"spot": False, "instance_type": "x9.huge"}, PriceSource.PRICE_TAG),
        ({"spot": False, "instance_type": "x9.huge", "tag_price": None}, PriceSource.UNKNOWN),
        ({"instance_type": "x9.huge", "tag_price": Decimal(0)}, PriceSource.UNKNOWN),
    ],
)
def test_the_best_available_price_source_is_used(changes, source):
    (span,) = a_book().spans(a_query(**changes), T0, T0 + 100)
    assert span.price.source is source


NO_PRICES = ["", "cheap", "0", "-0.4", "NaN", "sNaN", "Infinity", "-Infinity", "1e40", "1e-40"]


@pytest.mark.parametrize("text", [*NO_PRICES, "1e999999999", "1e-999999999", "9" * 5000])
def test_what_is_no_price_of_an_instance_is_none(text):
    assert parse_usd(text) is None


@pytest.mark.parametrize("text", ["0.4024", "0.1006000000", "142.416", "1E-7", "3e1"])
def test_a_price_is_read_as_it_was_written(text):
    assert parse_usd(text) == Decimal(text)


def test_time_after_a_spot_price_that_can_not_be_read_has_the_price_tag():
    changes = [(T0 - 50, Decimal("0.4")), (T0 + 30, None), (T0 + 60, Decimal("0.5"))]
    points = [("g5.xlarge", "us-east-1a", second, usd) for second, usd in changes]
    book = PriceBook("us-east-1", Catalogue.bundled(), SpotHistory.from_points(points))
    assert sources(book.spans(a_query(), T0, T0 + 100)) == [
        (0, 30, "history"),
        (30, 60, "believed"),
        (60, 100, "history"),
    ]


def test_an_empty_span_has_no_price():
    assert a_book().spans(a_query(), T0, T0) == []


class FakeEc2:
    """EC2 with pages of spot prices, newest first."""

    def __init__(self, points) -> None:
        self.points = points
        self.arguments = {}

    def get_paginator(self, name):
        assert name == "describe_spot_price_history"
        return self

    def paginate(self, **arguments):
        self.arguments = arguments
        for point in self.points:
            yield {"SpotPriceHistory": [point]}


def test_spot_price_history_is_read_in_pages_for_linux():
    def point(at, usd):
        return {
            "InstanceType": "g5.xlarge",
            "AvailabilityZone": "us-east-1a",
            "Timestamp": datetime.fromtimestamp(at, UTC),
            "SpotPrice": usd,
            "ProductDescription": "Linux/UNIX",
        }

    ec2 = FakeEc2([point(T0 + 5, "0.50"), point(T0 - 5, "0.40")])
    history = read_history(ec2, {"g5.xlarge"}, T0, T0 + 10)
    assert ec2.arguments["ProductDescriptions"] == ["Linux/UNIX"]
    assert history.changes == {
        ("g5.xlarge", "us-east-1a"): ((T0 - 5, Decimal("0.40")), (T0 + 5, Decimal("0.50")))
    }


@pytest.mark.parametrize("usd", NO_PRICES)
def test_a_spot_price_that_can_not_be_read_ends_no_report(usd):
    point = {
        "InstanceType": "g5.xlarge",
        "AvailabilityZone": "us-east-1a",
        "Timestamp": datetime.fromtimestamp(T0, UTC),
        "SpotPrice": usd,
    }
    history = read_history(FakeEc2([point]), {"g5.xlarge"}, T0, T0 + 10)
    assert history.spans("g5.xlarge", "us-east-1a", T0, T0 + 10) == []


def test_no_spot_price_history_is_requested_without_spot_instances():
    assert read_history(FakeEc2([]), set(), T0, T0 + 1) == SpotHistory()
