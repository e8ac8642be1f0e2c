"""The period that a moment lies in, in UTC."""

from datetime import UTC, datetime

import pytest

from slurmplugins.budgets.periods import DAY, days, period_of
from slurmplugins.config.budgets import PeriodKind
from tests.fakes.budgets import a_budget


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("kind", "now", "begin", "end"),
    [
        ("month", "2026-11-26T12:00", "2026-11-01", "2026-12-01"),
        ("month", "2026-12-31T23:59", "2026-12-01", "2027-01-01"),
        ("month", "2028-02-29T00:00", "2028-02-01", "2028-03-01"),
        ("month", "2026-12-01T00:00", "2026-12-01", "2027-01-01"),
        ("quarter", "2026-11-26T12:00", "2026-10-01", "2027-01-01"),
        ("quarter", "2026-01-01T00:00", "2026-01-01", "2026-04-01"),
        ("year", "2028-12-31T23:59", "2028-01-01", "2029-01-01"),
    ],
)
def test_a_calendars_period_begins_and_ends_at_midnight(kind, now, begin, end):
    period = period_of(a_budget(kind=PeriodKind(kind)), at(now))
    assert (period.begin, period.end) == (at(begin), at(end))


def test_a_grant_has_one_period():
    grant = a_budget(kind=PeriodKind.GRANT, since=at("2026-01-01"), until=at("2026-07-01"))
    for now in ("2025-01-01", "2026-03-01", "2027-01-01"):
        assert period_of(grant, at(now)).end == at("2026-07-01")


def test_a_time_is_cut_at_midnight():
    begin = at("2026-11-26T23:00")
    assert list(days(begin, begin + DAY)) == [
        (begin, begin + 3600),
        (begin + 3600, begin + DAY),
    ]
    assert list(days(begin, begin)) == []
