"""Billing weights that follow what was bought."""

from decimal import Decimal

from slurmplugins.budgets.weights import Purchase, scaled, weight_changes
from slurmplugins.config.budgets import ListedWeights

LISTED = "CPU=100.60,Mem=26.48G,GRES/gpu=402.40"
ITEM = {"spot": ListedWeights(LISTED, {"gpu": Decimal("0.4")})}
CURRENT = {"spot": LISTED}


def bought(usd: str, hours: float = 1, pool: str = "gpu") -> Purchase:
    return Purchase(pool, Decimal(usd), hours * 3600)


def changes(*purchases: Purchase, current=None):
    return list(weight_changes(ITEM, purchases, CURRENT if current is None else current))


def test_a_fallback_to_on_demand_bills_on_demand():
    (change,) = changes(bought("1.0"))
    assert (
        change.weights == scaled(LISTED, Decimal("2.5")) == "CPU=251.50,Mem=66.20G,GRES/gpu=1006.00"
    )


def test_each_instance_counts_by_its_time():
    (change,) = changes(bought("0.4", 3), bought("1.2", 1))
    assert change.ratio == Decimal("1.5")


def test_a_small_difference_changes_nothing():
    assert changes(bought("0.407")) == []


def test_without_instances_the_weights_go_back_to_the_listed_ones():
    assert changes() == []
    dear = {"spot": scaled(LISTED, Decimal(2))}
    assert [item.weights for item in changes(current=dear)] == [LISTED]


def test_other_pools_unknown_prices_and_missing_partitions_do_not_count():
    assert changes(bought("9", pool="cpu"), bought("0")) == []
    assert changes(bought("9"), current={}) == []
