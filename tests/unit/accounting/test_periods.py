"""Periods that people name."""

from __future__ import annotations

from datetime import date

import pytest

from toolkit.accounting import periods
from toolkit.accounting.errors import PeriodInvalid

TODAY = date(2026, 11, 26)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-11", "2026-11-01", "2026-11-30"),
        ("2026-02", "2026-02-01", "2026-02-28"),
        ("2024-02", "2024-02-01", "2024-02-29"),
        ("2026-Q4", "2026-10-01", "2026-12-31"),
        ("2026-q1", "2026-01-01", "2026-03-31"),
        ("2026", "2026-01-01", "2026-12-31"),
        ("2026-11-01..2026-11-15", "2026-11-01", "2026-11-15"),
        ("2026-11-26..2026-11-26", "2026-11-26", "2026-11-26"),
        ("last-month", "2026-10-01", "2026-10-31"),
    ],
)
def test_a_period_has_whole_days(text, first, last):
    period = periods.parse(text, TODAY)
    assert (period.first.isoformat(), period.last.isoformat()) == (first, last)
    days = (period.last - period.first).days + 1
    assert period.window.until - period.window.since == days * 86_400


def test_the_month_before_january_is_december():
    assert periods.parse("last-month", date(2027, 1, 31)).name == "2026-12"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-12", "2026-12 is in the future: it begins on 2026-12-01, and today is 2026-11-26"),
        ("2027", "2027 is in the future"),
        ("2027-Q1", "2027-Q1 is in the future"),
        ("2026-11-27..2026-11-28", "is in the future"),
        ("2026-11-15..2026-11-01", "ends before it begins"),
        ("2026-13", "'2026-13' is no period"),
        ("2026-11-31..2026-12-01", "is no period"),
        ("2026-Q5", "is no period"),
        ("november", "'november' is no period"),
        ("2026-11-01", "is no period"),
        ("1999", "is no period"),
        ("٢٠٢٦-11", "is no period"),
        ("9999", "is in the future"),
        ("", "is no period"),
    ],
)
def test_what_is_no_period_is_refused_in_clear_words(text, words):
    with pytest.raises(PeriodInvalid, match=words) as raised:
        periods.parse(text, TODAY)
    assert raised.value.next_step
    assert raised.value.exit_code == 2


def test_months_are_told_from_other_periods():
    assert periods.parse("2026-11", TODAY).is_month
    assert periods.parse("2026-11-01..2026-11-30", TODAY).is_month
    assert not periods.parse("2026-Q4", TODAY).is_month
    assert not periods.parse("2026-11-01..2026-11-29", TODAY).is_month
    assert not periods.parse("2026-10-31..2026-11-30", TODAY).is_month
    assert periods.month_of(TODAY) == periods.parse("2026-11", TODAY)
