"""The FOCUS file: the laws of its columns, as the specification of 1.2 states them."""

import csv
import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import duckdb
import pytest

from tests.unit.accounting.samples import T0, an_attempt, an_instance
from tests.unit.finance.samples import (
    DAY,
    DECEMBER,
    HOUR,
    NOVEMBER,
    a_month,
    a_report,
    an_interrupted_job,
    list_prices,
)
from toolkit.accounting.allocation import Window
from toolkit.accounting.charges import Component
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.money import usd
from toolkit.accounting.storage import Infrastructure, Sizes, UnitPrices
from toolkit.finance import focus_file
from toolkit.finance.errors import FinanceError, FocusFileInvalid, FocusPeriodInvalid
from toolkit.finance.focus_columns import COLUMNS
from toolkit.finance.focus_rows import billing_period, focus, product

NAMES = {column.name for column in COLUMNS}


def rows_of(report, **more):
    return focus(report, list_prices(), **more).rows


def written(tmp_path, rows, name="focus.csv"):
    path = tmp_path / name
    focus_file.write(path, rows)
    return path


def test_billed_and_effective_costs_sum_to_the_report():
    report = a_month()
    rows = rows_of(report)
    assert sum(row["BilledCost"] for row in rows) == usd(report.net)
    assert sum(row["EffectiveCost"] for row in rows) == usd(report.net)


def test_sub_accounts_are_slurms_accounts_and_sum_to_its_groups():
    report = a_month()
    rows = rows_of(report)
    accounts = {row["SubAccountId"] for row in rows}
    assert accounts == {"vision", "language", "speech", None}
    own = [row for row in rows if row["SubAccountId"] == "vision"]
    assert sum(row["BilledCost"] for row in own) == usd(report.net - others(report, "vision"))
    assert {row["SubAccountType"] for row in own} == {"Slurm account"}


def others(report, account):
    return sum(
        charge.micro
        for charge in report.charges()
        if charge.attempt is None or report.attempts[charge.attempt].account != account
    )


def test_spot_has_the_price_of_the_list_beside_its_own():
    (row,) = [row for row in rows_of(a_month()) if row["ResourceId"] == "demo/i-2/2/useful-work"]
    assert (row["PricingCategory"], row["ChargeCategory"]) == ("Dynamic", "Usage")
    assert (row["PricingQuantity"], row["PricingUnit"]) == (Decimal("1.000000000"), "Hours")
    assert (row["BilledCost"], row["ListCost"]) == (Decimal("0.36"), Decimal("1.006"))
    assert row["x_PriceSource"] == "history"
    assert json.loads(row["Tags"]) == {
        "account": "vision",
        "cluster": "demo",
        "job_name": "digits",
        "partition": "spot",
        "pool": "gpu",
        "user": "ada",
    }
    assert json.loads(row["SkuPriceDetails"])["InstanceType"] == "g5.xlarge"


def test_without_a_list_price_what_was_billed_stands_in_and_is_marked():
    instance = an_instance(instance_type="x9.huge", launched=NOVEMBER, ended=NOVEMBER + HOUR)
    rows = rows_of(a_report([], [instance]))
    assert {row["x_ListPriceSource"] for row in rows} == {"billed price"}
    for row in rows:
        assert abs(row["ListCost"] - row["BilledCost"]) < Decimal("1e-8")


def test_a_negotiated_price_is_the_contracted_one():
    from tests.unit.finance.samples import a_price_book
    from toolkit.finance.list_prices import ListPrices
    from toolkit.prices import Contracts
    from toolkit.prices.contracts import NegotiatedPrice, Term

    deal = NegotiatedPrice(None, Decimal(10), "", "", Term(0, None))
    book = replace(a_price_book(), contracts=Contracts(as_of=1, on_demand=(deal,)))
    rows = focus(a_month(), ListPrices(book)).rows
    row = next(row for row in rows if row["x_InstanceId"] == "i-2")
    assert (row["ListUnitPrice"], row["ContractedUnitPrice"]) == (
        Decimal("1.006"),
        Decimal("0.9054"),
    )


def test_a_refund_takes_back_its_hours():
    attempts, instances = an_interrupted_job()
    gone = instances[0].launched + 1800
    report = a_report(
        [replace(attempts[0], ended=gone, comments="")], [replace(instances[0], ended=gone)]
    )
    rows = rows_of(report)
    assert sum(row["BilledCost"] for row in rows) == 0
    assert abs(sum(row["PricingQuantity"] for row in rows)) < Decimal("1e-8")
    (refund,) = [row for row in rows if row["x_Component"] == "spot refund"]
    assert (refund["ChargeCategory"], refund["BilledCost"]) == ("Usage", Decimal("-0.18"))
    assert refund["ListUnitPrice"] > 0


def test_two_refunds_of_an_attempt_take_back_its_hours_once():
    """Days that were closed by another cost policy give an attempt two."""
    attempts, instances = an_interrupted_job()
    gone = instances[0].launched + 1800
    report = a_report(
        [replace(attempts[0], ended=gone, comments="")], [replace(instances[0], ended=gone)]
    )
    (cost,) = report.costs
    (whole,) = [item for item in cost.charges if item.component is Component.REFUND]
    others = tuple(item for item in cost.charges if item is not whole)
    third = whole.micro // 3
    parts = replace(whole, micro=third), replace(whole, micro=whole.micro - third)
    rows = rows_of(replace(report, costs=(replace(cost, charges=(*others, *parts)),)))
    assert sum(row["BilledCost"] for row in rows) == 0
    assert abs(sum(row["PricingQuantity"] for row in rows)) < Decimal("1e-8")


def test_shares_are_adjustments_that_sum_to_zero():
    attempts, instances = an_interrupted_job()
    policy = CostPolicy(boot=Payer.SHARED)
    report = a_report(attempts, instances, cost_policy=policy)
    rows = rows_of(report)
    shares = [row for row in rows if row["ChargeCategory"] == "Adjustment"]
    assert len(shares) >= 2
    assert sum(row["BilledCost"] for row in shares) == 0
    for row in shares:
        assert row["PricingQuantity"] is row["SkuId"] is row["PricingCategory"] is None
        assert row["ListCost"] == row["ContractedCost"] == row["BilledCost"]
    assert sum(row["BilledCost"] for row in rows) == usd(report.net)


def test_storage_has_the_services_of_aws():
    head = an_instance("i-h", node="head", pool="head", spot=False, launched=NOVEMBER, ended=None)
    price = Decimal("0.1")
    infrastructure = Infrastructure(
        Sizes(1200, 50, 50, 50, 30, has_nat=True),
        UnitPrices(NOVEMBER, price, price, price, price, price, price),
    )
    report = a_report([], [head], infrastructure=infrastructure)
    made = focus(report, list_prices())
    services = {(row["ServiceName"], row["ServiceSubcategory"]) for row in made.rows}
    assert ("Amazon FSx", "File Storage") in services
    assert ("Amazon Elastic Block Store", "Block Storage") in services
    assert ("Amazon Virtual Private Cloud", "Network Infrastructure") in services
    assert made.unknown == 3  # objects, and traffic twice: nobody knows how much
    assert sum(row["BilledCost"] for row in made.rows) == usd(report.net)


def test_an_unknown_amount_has_no_row_and_is_counted():
    instance = an_instance(
        instance_type="x9.huge", tag_price=None, launched=NOVEMBER, ended=NOVEMBER + HOUR
    )
    made = focus(a_report([], [instance]), list_prices())
    assert made.rows == ()
    assert made.unknown == 1


def test_an_accounts_own_tags_are_added_and_replace_none_of_slurms():
    tags = {"vision": {"pi_email": "ada@example.org", "user": "someone"}}
    row = next(row for row in rows_of(a_month(), account_tags=tags) if row["SubAccountId"])
    found = json.loads(row["Tags"])
    assert (found["pi_email"], found["user"]) == ("ada@example.org", "ada")


def test_days_are_divided_and_no_row_has_the_resource_and_time_of_another():
    rows = rows_of(a_month())
    keys = [(row["ResourceId"], row["ChargePeriodStart"]) for row in rows]
    assert len(set(keys)) == len(keys)
    head = [row for row in rows if row["x_InstanceId"] == "i-head"]
    assert len(head) == 30
    assert head[0]["ChargePeriodStart"] == "2026-11-01T00:00:00Z"
    assert head[-1]["ChargePeriodEnd"] == head[-1]["BillingPeriodEnd"] == "2026-12-01T00:00:00Z"


@pytest.mark.parametrize(
    ("since", "until", "first", "behind"),
    [
        (NOVEMBER, DECEMBER, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        (DECEMBER + DAY, DECEMBER + 2 * DAY, "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        (T0, T0 + 60, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
    ],
)
def test_a_time_within_a_month_has_that_months_billing_period(since, until, first, behind):
    assert billing_period(Window(since, until)) == (first, behind)


def test_a_time_over_two_months_is_refused_with_what_to_give():
    with pytest.raises(FocusPeriodInvalid) as caught:
        billing_period(Window(NOVEMBER + DAY, DECEMBER + 1))
    assert caught.value.next_step == "give --since 2026-11-01 --until 2026-12-01, a file a month"
    assert caught.value.exit_code == 2


def test_csv_has_all_columns_decimal_points_and_empty_cells(tmp_path):
    with written(tmp_path, rows_of(a_month())).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == NAMES
    assert {"." in row["PricingQuantity"] for row in rows} == {True}
    assert {row["ChargeClass"] for row in rows} == {""}
    assert sum(Decimal(row["BilledCost"]) for row in rows) == usd(a_month().net)


def test_names_are_no_formulas_in_csv(tmp_path):
    attempts, instances = an_interrupted_job()
    report = a_report([replace(item, account="=cmd()") for item in attempts], instances)
    with written(tmp_path, rows_of(report)).open(newline="") as file:
        found = {row["SubAccountId"] for row in csv.DictReader(file)}
    assert found == {"'=cmd()"}


def records(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]


def test_parquet_has_the_rows_of_csv_with_types(tmp_path):
    rows = rows_of(a_month())
    path = written(tmp_path, rows, "focus.parquet")
    with duckdb.connect() as connection:
        table = connection.read_parquet(str(path))
        kinds = dict(zip(table.columns, map(str, table.types), strict=True))
        costs = [row["BilledCost"] for row in records(table)]
        starts = {row["ChargePeriodStart"] for row in records(table)}
    assert kinds["BilledCost"] == "DOUBLE"
    assert kinds["ChargePeriodStart"] == "TIMESTAMP"
    assert len(costs) == len(rows)
    assert sum(Decimal(repr(cost)) for cost in costs) == usd(a_month().net)
    assert min(starts) == datetime(2026, 11, 1)  # noqa: DTZ001  # Parquet's has no zone
    assert [item.name for item in tmp_path.iterdir()] == ["focus.parquet"]


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = written(tmp_path, rows_of(a_month()))
    before = path.read_bytes()
    with pytest.raises(KeyError):
        focus_file.write(path, [*rows_of(a_month()), {}])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FinanceError, match="can't write"):
        focus_file.write(tmp_path / "nowhere" / "focus.csv", [])


def test_a_name_that_tells_no_format_is_refused(tmp_path):
    with pytest.raises(FocusFileInvalid, match="tells no format"):
        focus_file.check_name(tmp_path / "focus.xlsx")


def test_prices_times_hours_are_the_cost_in_doubles():
    hours, price = Decimal("0.166666667"), Decimal("1.006")
    assert float(product(price, hours)) == float(price) * float(hours)


def test_every_component_of_a_job_makes_rows_of_one_service():
    rows = rows_of(a_month())
    by_service = {}
    for row in rows:
        by_service.setdefault(row["ServiceName"], set()).add(row["ServiceCategory"])
    assert all(len(categories) == 1 for categories in by_service.values())
    assert {row["x_Component"] for row in rows} >= {Component.WORK, Component.LOST, Component.BOOT}


def test_attempts_of_one_second_keep_their_own_rows():
    attempts = [
        an_attempt(key, job_id="9", restarts=0, submitted=NOVEMBER, started=NOVEMBER,
                   ended=NOVEMBER + HOUR, state=state)
        for key, state in ((1, "RESIZING"), (2, "COMPLETED"))
    ]  # fmt: skip
    instance = an_instance(launched=NOVEMBER, ended=NOVEMBER + HOUR)
    rows = rows_of(a_report(attempts, [instance]))
    keys = [(row["ResourceId"], row["ChargePeriodStart"]) for row in rows]
    assert len(set(keys)) == len(keys)
