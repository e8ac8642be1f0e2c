"""The local cloud's list prices."""

from __future__ import annotations

from decimal import Decimal

import pytest

from toolkit.local.aws.list_prices import ON_DEMAND
from toolkit.local.aws.spot_prices import PERIOD, spot_price
from toolkit.local.billing.rates import LocalRates
from toolkit.local.billing.usage_log import Kind, UsageEvent
from toolkit.prices import Catalogue


@pytest.mark.parametrize("instance_type", sorted(Catalogue.bundled().prices))
def test_the_toolkits_catalogue_has_awss_list_price(instance_type):
    """Compare the two tables to the catalogue's four decimal places."""
    listed = Decimal(ON_DEMAND[instance_type])
    assert abs(listed - Catalogue.bundled().prices[instance_type]) < Decimal("0.00005")


def event(kind, type_, market=""):
    return UsageEvent(0, "x", kind, "running", "us-east-1", "us-east-1a", type_, market)


def test_spot_has_the_price_of_its_history_at_that_second():
    spot = event(Kind.INSTANCE, "g5.xlarge", "spot")
    for second in (PERIOD - 1, PERIOD):
        expected = Decimal(spot_price("g5.xlarge", "us-east-1a", second))
        assert LocalRates().price(spot, second) == expected < LocalRates().list_price(spot)


@pytest.mark.parametrize(
    ("item", "usd"),
    [
        (event(Kind.INSTANCE, "g5.xlarge", "on-demand"), "1.006"),
        (event(Kind.VOLUME, "gp3"), "0.08"),
        (event(Kind.FILE_SYSTEM, "PERSISTENT_2.250"), "0.21"),
    ],
)
def test_the_rest_has_its_list_price(item, usd):
    assert LocalRates().price(item, 0) == LocalRates().list_price(item) == Decimal(usd)
