"""The classes of a bill's lines add up to the file, whatever stands in it."""

import csv
import tempfile
from contextlib import closing
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

from hypothesis import given, settings, strategies as st

from tests.unit.bill.bills import CORPUS, report_json
from toolkit.bill import estimates
from toolkit.bill.amounts import ZERO
from toolkit.bill.classes import LineClass
from toolkit.bill.match import match
from toolkit.bill.reader import open_files, read_lines
from toolkit.bill.tally import tally

KNOWN = estimates.parse(report_json())
with (CORPUS / "plain-month.csv").open(encoding="utf-8") as stream:
    HEADER = next(csv.reader(stream))
TYPES = [
    "Usage", "DiscountedUsage", "SavingsPlanCoveredUsage", "SavingsPlanNegation", "Fee", "RIFee",
    "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee", "Credit", "Refund", "Tax", "EdpDiscount",
    "BundledDiscount", "", "Surprise",
]  # fmt: skip
AMOUNTS = st.one_of(
    st.decimals(-(10**6), 10**6, places=10).map(lambda amount: f"{amount:f}"),
    st.sampled_from(["", "NaN", "Infinity", "1e40", "-1e-40", "0", "1E-7", "ten"]),
)
DAYS = st.integers(0, 40).map(lambda number: str(date(2026, 10, 28) + timedelta(days=number)))
TAGS = ["", "{}", '{"user_toolkit_cluster":"demo"}', '{"user:toolkit:cluster":"prod"}', '{"a', "[]"]


@st.composite
def rows(draw):
    """Draw a row; the cost of most can be read."""
    row = dict.fromkeys(HEADER, "")
    row |= {
        "identity_line_item_id": draw(st.sampled_from(["", "a", "b"])),
        "line_item_line_item_type": draw(st.sampled_from(TYPES)),
        "line_item_resource_id": draw(st.sampled_from(["", "i-1", "i-2", "vol-1", "=1+1"])),
        "line_item_usage_type": draw(st.sampled_from(["BoxUsage:m5.large", "EU-SpotUsage:c5", ""])),
        "line_item_usage_start_date": draw(DAYS),
        "line_item_usage_amount": draw(AMOUNTS),
        "line_item_unblended_cost": draw(AMOUNTS),
        "line_item_currency_code": draw(st.sampled_from(["USD", "USD", "USD", ""])),
        "bill_billing_period_start_date": draw(st.sampled_from(["2026-11-01", "2026-12-01", ""])),
        "resource_tags": draw(st.sampled_from(TAGS)),
        "reservation_reservation_a_r_n": draw(st.sampled_from(["", "arn:x"])),
        "savings_plan_savings_plan_effective_cost": draw(AMOUNTS),
        "reservation_effective_cost": draw(AMOUNTS),
    }
    return row


def tallied(bill):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bill.csv"
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, HEADER, lineterminator="\n")
            writer.writeheader()
            writer.writerows(bill)
        with closing(read_lines(open_files([path]))) as lines:
            return tally(lines, "demo", {"i-1"})


@settings(max_examples=60, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=12), st.lists(st.integers(0, 11), max_size=4))
def test_the_classes_add_up_to_the_file(bill, repeated):
    bill = [*bill, *(bill[number] for number in repeated if number < len(bill))]
    result = tallied(bill)
    sums = result.classes
    assert sum(item.lines for item in sums.values()) == len(bill)
    aside = sums[LineClass.SET_ASIDE].lines if LineClass.SET_ASIDE in sums else 0
    if not aside:
        by_hand = sum(Fraction(row["line_item_unblended_cost"]) for row in bill)
        assert sum(Fraction(item.unblended) for item in sums.values()) == by_hand
    billed = sum(Fraction(day.usd) for day in result.instances.values())
    instances = sums.get(LineClass.INSTANCE)
    assert billed == (Fraction(instances.effective) if instances else 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=12))
def test_lines_add_up_to_days_and_days_to_the_total(bill):
    result = tallied(bill)
    days = {date(2026, 11, 1) + timedelta(days=number) for number in range(30)}
    found = match(result, KNOWN, days, ZERO)
    for name in ("estimated", "billed", "gap", "credits"):
        by_day = sum(Fraction(getattr(item, name)) for item in found.days.values())
        assert by_day == Fraction(getattr(found.total, name))
    known = [line for line in found.lines if line.gap is not None]
    assert sum(Fraction(line.billed) - Fraction(line.estimated) for line in known) == Fraction(
        found.total.gap
    )
    elsewhere = sum(Fraction(usd) for usd in found.days_not_compared.values())
    unreadable = sum(
        Fraction(billed.usd)
        for key, billed in result.instances.items()
        if key in result.unreadable and key[1] in days
    )
    everywhere = sum(Fraction(billed.usd) for billed in result.instances.values())
    assert Fraction(found.total.billed) + elsewhere + unreadable == everywhere
