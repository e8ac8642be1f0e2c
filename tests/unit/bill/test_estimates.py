"""A saved report, and the estimates in it."""

import copy
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.unit.bill.bills import NOW, SINCE, report_json
from toolkit.bill import estimates
from toolkit.bill.errors import ReportUnreadable

LIFE = {
    "id": "i-1",
    "spot": True,
    "from": datetime(2026, 11, 5, 23, 30, tzinfo=UTC),
    "to": datetime(2026, 11, 6, 0, 45, tzinfo=UTC),
}


def saved(folder, content):
    path = folder / "report.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_report_becomes_estimates_by_day(tmp_path):
    known = estimates.read(saved(tmp_path, report_json(LIFE)))
    assert known.cluster == "demo"
    assert known.nodes == {"i-1": "gpu-000"}
    assert known.by_day == {
        ("i-1", date(2026, 11, 5)): estimates.Estimate(1800, Decimal("0.18")),
        ("i-1", date(2026, 11, 6)): estimates.Estimate(2700, Decimal("0.27")),
    }


def test_only_whole_days_are_complete():
    known = estimates.parse(report_json(since=SINCE + 1, until=NOW - 1))
    assert not known.is_complete(date(2026, 11, 1))
    assert known.is_complete(date(2026, 11, 2))
    assert known.is_complete(date(2026, 12, 3))
    assert not known.is_complete(date(2026, 12, 4))


def test_an_unknown_price_is_an_unknown_estimate():
    known = estimates.parse(report_json(LIFE | {"type": "x9.huge", "spot": False}))
    assert known.by_day["i-1", date(2026, 11, 5)].usd is None


def edited(change):
    content = copy.deepcopy(report_json(LIFE))
    change(content)
    return content


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"cluster": "demo"',
        "[" * 100_000,
        edited(lambda content: content.pop("asked_since")),
        edited(lambda content: content.update(cluster="../../etc/passwd")),
        edited(lambda content: content.update(cluster=7)),
        edited(lambda content: content["instances"][0].pop("days")),
        edited(lambda content: content["instances"][0]["days"][0].update(usd="1e40")),
        edited(lambda content: content["instances"][0]["days"][0].update(usd="0.19")),
        edited(lambda content: content["instances"].append(content["instances"][0])),
    ],
    ids=lambda content: str(content)[:20],
)
def test_a_file_that_is_no_report_ends_with_a_sentence(tmp_path, content):
    with pytest.raises(ReportUnreadable, match=r"report.json"):
        estimates.read(saved(tmp_path, content))
