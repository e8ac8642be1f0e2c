"""Laws of the files for finance: their sums are the report's, for any history.

The histories are those of the conservation laws, moved so that a midnight is among their
seconds.
"""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings, strategies as st

from tests.property.accounting.test_conservation import (
    CATALOGUE,
    END,
    SHAPE,
    TYPES,
    ZONES,
    attempts,
    policies,
    prices,
    stopped_instances,
    windows,
)
from tests.unit.finance.samples import html_of
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.money import usd
from toolkit.config.targets import Targets
from toolkit.finance.charges_by_day import charges_by_day
from toolkit.finance.focus_columns import COLUMNS
from toolkit.finance.focus_rows import focus
from toolkit.finance.indicators import indicators
from toolkit.finance.list_prices import ListPrices
from toolkit.finance.measures import Ratio, measures
from toolkit.finance.outcomes import Outcomes
from toolkit.finance.savings import Measure
from toolkit.prices import PriceBook, SpotHistory

SHIFT = 10 * 86_400 - 4000
NOT_NULL = (
    "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd",
    "ChargeCategory", "ChargeDescription", "ChargeFrequency", "ChargePeriodStart",
    "ChargePeriodEnd", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "ProviderName", "PublisherName", "ResourceId", "ResourceType", "ServiceCategory", "ServiceName",
    "ServiceSubcategory", "Tags",
)  # fmt: skip
OF_USAGE = (
    "ConsumedQuantity", "ConsumedUnit", "ContractedUnitPrice", "ListUnitPrice", "PricingCategory",
    "PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice", "PricingQuantity",
    "PricingUnit", "SkuId", "SkuMeter", "SkuPriceId",
)  # fmt: skip


def moved(second):
    return None if second is None else second + SHIFT


@st.composite
def reports(draw):
    instances = [
        replace(
            item,
            launched=moved(item.launched),
            ended=moved(item.ended),
            running=moved(item.running),
            stops=tuple((moved(stop), moved(start)) for stop, start in item.stops),
        )
        for item in draw(stopped_instances())
    ]
    tries = [
        replace(
            item,
            submitted=moved(item.submitted),
            started=moved(item.started),
            ended=moved(item.ended),
            comments=f"toolkit:checkpoint={moved(item.started or 0) + 60}",
        )
        for item in draw(attempts())
    ]
    points = st.tuples(
        st.sampled_from(TYPES), st.sampled_from(ZONES), st.integers(SHIFT, SHIFT + 8000), prices
    )
    book = PriceBook("us-east-1", CATALOGUE, SpotHistory.from_points(draw(st.lists(points))))
    window = draw(windows())
    window = Window(moved(window.since), moved(window.until))
    made = build(
        cluster="demo",
        attempts=tries,
        instances=instances,
        shapes={item.instance_id: SHAPE for item in instances},
        book=book,
        window=window,
        now=moved(END + 6000),
        cost_policy=draw(policies),
    )
    return made, ListPrices(book)


@given(reports())
@settings(max_examples=150, deadline=None)
def test_the_days_of_a_charge_sum_to_it(drawn):
    made, _ = drawn
    sums, seconds = {}, {}
    for part in charges_by_day(made):
        key = id(part.charge)
        sums[key] = sums.get(key, 0) + part.micro
        seconds[key] = seconds.get(key, Fraction(0)) + part.seconds
        assert made.window.since <= part.start < part.end <= made.window.until
    charges = list(made.charges())
    assert sums == {id(charge): charge.micro for charge in charges}
    assert seconds == {id(charge): charge.seconds for charge in charges}


@given(reports())
@settings(max_examples=150, deadline=None)
def test_focus_rows_sum_to_the_report_and_keep_the_columns_laws(drawn):
    made, listed = drawn
    content = focus(made, listed)
    assert sum((row["BilledCost"] for row in content.rows), Decimal(0)) == usd(made.net)
    assert content.unknown == sum(not charge.price_known for charge in made.charges())
    keys = {(row["ResourceId"], row["ChargePeriodStart"]) for row in content.rows}
    assert len(keys) == len(content.rows)
    for row in content.rows:
        assert set(row) == {column.name for column in COLUMNS}
        assert [name for name in NOT_NULL if row[name] is None] == []
        assert "" not in row.values()
        assert row["EffectiveCost"] == row["BilledCost"] == row["PricingCurrencyEffectiveCost"]
        assert row["ProviderName"] == row["InvoiceIssuerName"]  # else it was paid elsewhere
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"]
        assert row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        is_usage = row["ChargeCategory"] == "Usage"
        assert {row[name] is not None for name in OF_USAGE} == {is_usage}
        if is_usage:
            for kind in ("List", "Contracted"):
                price, cost = row[f"{kind}UnitPrice"], row[f"{kind}Cost"]
                assert price >= 0
                assert float(price) * float(row["PricingQuantity"]) == float(cost)
        assert (row["SubAccountId"] is None) == (row["SubAccountType"] is None)
        assert (row["RegionId"] is None) == (row["RegionName"] is None)


@given(reports())
@settings(max_examples=60, deadline=None)
def test_the_numbers_of_the_html_are_the_reports(drawn):
    made, listed = drawn
    found = measures(made, listed)
    assert sum(sum(day.values()) for day in found.spend.values()) == made.net == found.cost
    for ratio in (found.spot_share, found.utilisation, found.success, found.checkpoints):
        if ratio is not None and ratio.value is not None:
            assert 0 <= ratio.value <= 1
    outcomes = Outcomes(made)
    ended = outcomes.ended_jobs
    assert not ended.completed & ended.failed
    assert ended.count <= len(outcomes.jobs)
    positive = sum(max(charge.micro, 0) for charge in made.charges())
    assert 0 <= found.wasted <= positive
    for measure in Measure:
        assert found.savings.total(measure).quantity >= 0
    assert html_of(made).startswith("<!doctype html>")


@given(st.fractions(), st.just(Fraction(0)) | st.fractions())
def test_a_ratio_without_a_denominator_has_no_value(part, whole):
    ratio = Ratio(part, whole)
    assert (ratio.value is None) == (whole == 0)


@given(reports())
@settings(max_examples=50, deadline=None)
def test_no_indicator_shows_zero_where_nothing_is_known(drawn):
    made, listed = drawn
    found = measures(made, listed)
    for item in indicators(found, None, Targets()):
        assert item.text
        is_unknown = item.text in {"no data", "not measured"}
        assert is_unknown <= (item.verdict is None)
