"""The facts that a closed month keeps for its files: they print the same as at its closing."""

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.unit.finance.samples import NOVEMBER, a_month, a_price_book
from toolkit.accounting.report import Key
from toolkit.config.targets import Targets
from toolkit.finance import facts as finance_facts, html_report
from toolkit.finance.facts import FinanceFacts
from toolkit.finance.focus_rows import focus
from toolkit.finance.indicators import values
from toolkit.finance.list_prices import ListPrices
from toolkit.finance.measures import measures
from toolkit.finance.recorded_choices import RecordedChoices
from toolkit.prices import Catalogue, Contracts
from toolkit.prices.contracts import NegotiatedPrice, Term
from toolkit.quote.planned_starts import PlannedStart
from toolkit.quote.right_sizes import RightSize

DAY = 86_400
CONTRACTS = Contracts(
    as_of=NOVEMBER,
    on_demand=(
        NegotiatedPrice(Decimal("0.9"), instance_type="g5.xlarge", term=Term(NOVEMBER + 9 * DAY)),
        NegotiatedPrice(discount_percent=Decimal("12.5"), region="us-east-1"),
        NegotiatedPrice(Decimal(5), instance_type="p5.48xlarge"),
    ),
)
NEWER = Catalogue("us-east-1", NOVEMBER + 5 * DAY, {"g5.xlarge": Decimal("1.1")}, {})
BOOK = replace(a_price_book(), contracts=CONTRACTS, imported=(NEWER,))


def kept(facts, report):
    types = {item.instance_type for item in report.instances.values()}
    return finance_facts.from_json(json.loads(json.dumps(finance_facts.to_json(facts, types))))


def printed(facts, report):
    made = measures(report, facts.prices, facts.choices)
    subject = html_report.Subject(report, made, facts.targets, facts.before)
    return html_report.render(subject, [Key.ACCOUNT]), focus(report, facts.prices).rows


@pytest.mark.parametrize("has_before", [True, False])
def test_kept_facts_print_the_same_files(has_before):
    report = a_month()
    before = values(measures(report, ListPrices(a_price_book()))) if has_before else None
    facts = FinanceFacts(Targets(utilisation_percent=12.5), ListPrices(BOOK), before)
    assert printed(kept(facts, report), report) == printed(facts, report)
    plain = FinanceFacts(Targets(), ListPrices(a_price_book()), before)
    assert printed(facts, report) != printed(plain, report)


def test_an_indicator_without_a_value_stays_without_one():
    before = {"success rate": None, "waste": Fraction(1, 3)}
    facts = FinanceFacts(Targets(), ListPrices(BOOK), before)
    assert kept(facts, a_month()).before == before


def test_prices_of_other_types_are_not_kept():
    text = json.dumps(
        finance_facts.to_json(FinanceFacts(Targets(), ListPrices(BOOK), None), {"g5.xlarge"})
    )
    assert "g5.xlarge" in text
    assert "p5.48xlarge" not in text


def a_choice(report):
    """Return a start that was planned for one of the month's jobs."""
    attempt = next(iter(report.attempts.values()))
    times = (attempt.submitted, attempt.started, attempt.ended + 1)
    start = PlannedStart(attempt.job, *times, "g5.xlarge", Decimal("0.5"))
    size = RightSize(attempt.job_id, attempt.started, "g5.xlarge", Fraction(4, 3))
    return RecordedChoices((start,), (size,))


def test_a_closed_month_keeps_the_recorded_choices_of_its_jobs():
    report = a_month()
    facts = FinanceFacts(Targets(), ListPrices(BOOK), None, a_choice(report))
    assert "later start" in printed(facts, report)[0]
    assert "right size" in printed(facts, report)[0]
    assert printed(kept(facts, report), report) == printed(facts, report)


def test_a_month_that_was_closed_without_recorded_choices_has_none():
    report = a_month()
    facts = FinanceFacts(Targets(), ListPrices(BOOK), None)
    data = finance_facts.to_json(facts, {"g5.xlarge", "m7i.large"})
    del data["choices"]
    assert printed(finance_facts.from_json(data), report) == printed(facts, report)
