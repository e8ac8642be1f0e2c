"""Prices and the cost policy in cluster.yaml."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.unit.config.test_load import GOOD, edited, problems
from toolkit.config import parse
from toolkit.config.prices import Prices
from toolkit.config.rack_names import MAX_NAMES, rack_nodes

LINE = len(GOOD.splitlines()) + 1


def a_price(text):
    section = f"prices: {{as_of: 2026-11-01, on_demand: [{{type: g5.xlarge, {text}}}]}}\n"
    return f"{GOOD}{section}"


def test_without_the_sections_nothing_is_agreed_and_jobs_pay_what_they_caused():
    config = parse(GOOD)
    assert config.prices.on_demand == ()
    assert (config.cost_policy.boot, config.cost_policy.storage) == ("job", "cluster")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0.1006", "0.1006"),
        ('"0.100600000001"', "0.100600000001"),
        ("55", "55"),
        ("1e2", "100"),
        ("0.30000000000000004", None),
        ("0.1000000", "0.1"),
    ],
)
def test_a_price_is_exactly_what_the_file_has(written, expected):
    text = a_price(f"usd_per_hour: {written}")
    if expected is None:
        assert "quotes" in problems(text)["prices.on_demand[0].usd_per_hour"][1]
    else:
        assert parse(text).prices.on_demand[0].usd_per_hour == Decimal(expected)


NO_PRICES = ["0", "-1", ".nan", ".inf", "1e40", '"NaN"', '"1e40"', "1e-13", "true", "[]", "free"]


@pytest.mark.parametrize("written", NO_PRICES)
def test_what_is_no_price_is_refused_at_its_line(written):
    line, message = problems(a_price(f"usd_per_hour: {written}"))[
        "prices.on_demand[0].usd_per_hour"
    ]
    assert (line, message.partition(",")[0]) == (LINE, "expected US dollars above 0")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ('"2026-11-01T11:30"', datetime(2026, 11, 1, 11, 30, tzinfo=UTC)),
        ("2026-11-01T11:30:05Z", datetime(2026, 11, 1, 11, 30, 5, tzinfo=UTC)),
    ],
)
def test_a_day_begins_at_midnight_utc(written, expected):
    text = f"{GOOD}prices: {{as_of: {written}}}\n"
    assert parse(text).prices.as_of == expected


TERM = "since: 2026-11-01, until: 2026-12-01"
PURCHASE = "capex_usd: 30000, years: 5, target_utilisation: 0.7"


@pytest.mark.parametrize(
    ("section", "path", "words"),
    [
        ("as_of: yesterday", "as_of", "a day such as 2026-11-01"),
        ("as_of: '2026-02-30'", "as_of", "a day such as 2026-11-01"),
        ("on_demand: [{discount_percent: 7}]", "", "expected as_of"),
        ("on_demand: [{type: g5.xlarge}]", "on_demand[0]", "either usd_per_hour or"),
        ("on_demand: [{usd_per_hour: 1}]", "on_demand[0]", "expected type"),
        (
            "on_demand: [{discount_percent: 5}, {discount_percent: 7}]",
            "on_demand[1]",
            "an entry above",
        ),
        ("on_demand: [{discount_percent: 100}]", "on_demand[0].discount_percent", "below 100"),
        ("on_demand: [{region: here, discount_percent: 1}]", "on_demand[0].region", "a region"),
        (
            "on_demand: [{discount_percent: 1, since: 2026-11-02, until: 2026-11-01}]",
            "on_demand[0].until",
            "after since",
        ),
        (
            f"reserved_instances: [{{count: 1, usd_per_hour: 1, {TERM}}}]",
            "reserved_instances[0]",
            "either type or family",
        ),
        (
            f"reserved_instances: [{{type: g5.xlarge, count: 0, usd_per_hour: 1, {TERM}}}]",
            "reserved_instances[0].count",
            "greater than or equal to 1",
        ),
        (
            f"savings_plans: [{{commitment_usd_per_hour: 5, {TERM}}}]",
            "savings_plans[0]",
            "discount_percent, or rates",
        ),
        (
            f"savings_plans: [{{commitment_usd_per_hour: 5, rates: {{g5.xlarge: 0}}, {TERM}}}]",
            "savings_plans[0].rates.g5.xlarge",
            "US dollars above 0",
        ),
        (
            f"capacity_blocks: [{{reservation: cr-0abc, count: 1, usd_total: 9, {TERM}}}]",
            "capacity_blocks[0].reservation",
            "no pool has an offering of cr-0abc",
        ),
        (
            f"capacity_blocks: [{{pool: gpus, count: 1, usd_total: 9, {TERM}}}]",
            "capacity_blocks[0].pool",
            "did you mean 'gpu'?",
        ),
        (
            f"capacity_blocks: [{{count: 1, usd_total: 9, {TERM}}}]",
            "capacity_blocks[0]",
            "either reservation or pool",
        ),
        ("racks: [{nodes: 'r[1-', usd_per_hour: 1}]", "racks[0].nodes", "nodes such as"),
        ("racks: [{nodes: 'r[9-1]', usd_per_hour: 1}]", "racks[0].nodes", "a range of 1 to"),
        ("racks: [{nodes: gpu-001, usd_per_hour: 1}]", "racks[0].nodes", "a node of pool gpu"),
        ("racks: [{nodes: 'r1,r1', usd_per_hour: 1}]", "racks[0].nodes", "listed twice"),
        (
            "racks: [{nodes: r1, usd_per_hour: 1}, {nodes: 'r[1-2]', usd_per_hour: 2}]",
            "racks[1].nodes",
            "r1 is listed twice",
        ),
        ("racks: [{nodes: r1}]", "racks[0]", "capex_usd is missing"),
        ("racks: [{nodes: r1, capex_usd: 9, years: 5}]", "racks[0]", "target_utilisation is"),
        (f"racks: [{{nodes: r1, {PURCHASE}, watts: 900}}]", "racks[0]", "usd_per_kwh together"),
        (f"racks: [{{nodes: r1, usd_per_hour: 1, {PURCHASE}}}]", "racks[0].capex_usd", "already"),
        (
            f"racks: [{{nodes: r1, {PURCHASE.replace('0.7', '1.5')}}}]",
            "racks[0].target_utilisation",
            "a part above 0",
        ),
        ("storage: {fsx_usd_per_gb_month: 0}", "storage.fsx_usd_per_gb_month", "US dollars"),
        ("netwrok: {}", "netwrok", "did you mean 'network'?"),
    ],
)
def test_a_wrong_price_is_refused_at_its_key(section, path, words):
    as_of = "" if "as_of" in section or not path else "as_of: 2026-11-01, "
    found = problems(f"{GOOD}prices: {{{as_of}{section}}}\n")
    place = f"prices.{path}".rstrip(".")
    assert list(found) == [place]
    assert found[place][0] == LINE
    assert words in found[place][1]


def test_a_day_that_no_calendar_has_is_refused_at_its_line():
    line, message = problems(f"{GOOD}prices:\n  as_of: 2026-02-30\n")[""]
    assert (line, message) == (LINE + 1, "not a day: day is out of range for month")


@pytest.mark.parametrize(
    ("policy", "path", "words"),
    [
        ("boot: user", "cost_policy.boot", "'job', 'cluster' or 'shared'"),
        ("storage: job", "cost_policy.storage", "'cluster' or 'shared'"),
        ("boots: job", "cost_policy.boots", "did you mean 'boot'?"),
    ],
)
def test_an_unknown_payer_is_refused(policy, path, words):
    found = problems(f"{GOOD}cost_policy: {{{policy}}}\n")
    assert list(found) == [path]
    assert words in found[path][1]


def test_the_documented_prices_are_valid():
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    (section,) = re.findall(r"^```\n(prices:\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    offering = "{type: g5.xlarge, capacity: capacity-block, zone: us-east-1a, reservation: cr-0abc}"
    text = edited("      - {type: g5.xlarge, capacity: spot}\n", f"      - {offering}\n")
    prices = parse(f"{text}{section}").prices
    assert all(getattr(prices, name) for name in Prices.model_fields)


def test_a_hostlist_of_racks_is_expanded_in_its_order():
    assert rack_nodes("RACK7,dgx[08-10],r1-n[2,1]-ib") == (
        *("RACK7", "dgx08", "dgx09", "dgx10", "r1-n2-ib", "r1-n1-ib"),
    )


@pytest.mark.parametrize("text", ["None assigned", "", "a[1-999999]", "a[1-15000],b[1-15000]"])
def test_what_is_no_hostlist_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        rack_nodes(text)
    assert MAX_NAMES == 20_000
