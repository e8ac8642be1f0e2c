"""Storage and network are lines of the report; what nobody knows is unknown, never 0."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from tests.unit.accounting.samples import T0, a_book, an_instance
from tests.unit.accounting.test_report import KEYS, printed
from tests.unit.finance.samples import html_of
from toolkit.accounting import export
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.metrics import NO_METRICS, Metrics, StoredBytes
from toolkit.accounting.storage import (
    NO_BYTES,
    NO_METRIC,
    NO_SIZE,
    OTHER_CLASSES,
    Infrastructure,
    Sizes,
    UnitPrices,
    gb_months,
)

SIZES = Sizes(
    filesystem=1200, head_root=50, head_data=100, login_root=40, node_root=30, has_nat=True
)
NOVEMBER = 30 * 86_400
HEAD = {"pool": "head", "node": "head", "spot": False, "ended": None, "end_cause": ""}
ALL = UnitPrices(
    as_of=T0,
    fsx=Decimal("0.145"),
    ebs=Decimal("0.08"),
    s3=Decimal("0.023"),
    nat_hour=Decimal("0.045"),
    nat_gb=Decimal("0.045"),
    cross_zone_gb=Decimal("0.01"),
)


def a_report(prices, *instances, sizes=SIZES, hours=1, since=T0, metrics=NO_METRICS):
    return build(
        cluster="demo",
        attempts=[],
        instances=instances or [an_instance("i-head", **HEAD)],
        shapes={},
        book=a_book(),
        window=Window(since, since + hours * 3600),
        now=since + hours * 3600,
        infrastructure=Infrastructure(sizes, prices),
        metrics=metrics,
    )


def lines(report):
    return {
        charge["instance"]: charge["usd"]
        for charge in export.as_json(report, KEYS)["charges"]
        if charge["lifecycle"] in {"storage", "network"}
    }


def test_a_gb_month_is_a_gb_for_the_seconds_of_its_month():
    """Take 60 s of November 2026 and 120 s of December."""
    december = 1_796_083_200
    assert gb_months(10, december - 60, december + 120) == (
        Fraction(600, NOVEMBER) + Fraction(1200, 31 * 86_400)
    )
    assert gb_months(10, T0, T0) == 0


def test_each_line_is_its_size_times_its_time():
    """Take one hour of November, 1/720: 1200 GB are 0.241667.

    A node of 30 GB that lived for half of it has 15/720 x 0.08 = 0.001667.
    """
    node = an_instance(launched=T0, ended=T0 + 1800)
    report = a_report(ALL, an_instance("i-head", **HEAD), node)
    assert lines(report) == {
        "shared filesystem": "0.241667",
        "head's data volume": "0.011111",
        "head's root volume": "0.005556",
        "other root volumes": "0.001667",
        "objects": None,
        "NAT gateway": "0.045000",
        "NAT traffic": None,
        "traffic between zones": None,
    }
    data = export.as_json(report, KEYS)
    assert Decimal(data["total"]) == sum(Decimal(row["usd"] or 0) for row in data["charges"])
    sources = {row["price_source"] for row in data["charges"] if row["lifecycle"] == "storage"}
    assert sources == {"contract", "unknown"}


def test_an_unknown_line_is_shown_as_unknown_and_says_why():
    report = a_report(replace(ALL, fsx=None))
    assert lines(report)["shared filesystem"] is None
    assert "shared filesystem: no price in cluster.yaml: its cost is unknown" in report.notes
    assert f"objects: {NO_SIZE}" in report.notes
    assert f"NAT traffic: {NO_BYTES}" in report.notes
    assert f"traffic between zones: {NO_METRIC}" in report.notes
    assert "storage" in printed(report)
    assert "before taxes\n" in printed(report).replace(" \n", "\n")
    assert "objects" in html_of(report, KEYS)
    row = next(row for row in export.as_csv(report).splitlines() if ",objects," in row)
    assert ",unknown," in row


def test_without_prices_of_storage_the_report_says_that_it_leaves_them_out():
    report = a_report(UnitPrices())
    assert lines(report) == {}
    assert "before taxes, storage and transfer" in printed(report)


def test_without_nat_there_is_no_line_of_it():
    report = a_report(ALL, sizes=replace(SIZES, has_nat=False))
    assert not any("NAT" in name for name in lines(report))


def test_without_a_head_node_nobody_knows_how_long_the_filesystem_lived():
    report = a_report(ALL, an_instance())
    assert lines(report)["shared filesystem"] is None
    assert any("no head node is known" in note for note in report.notes)


def test_a_head_that_ended_ends_the_filesystem():
    head = an_instance("i-head", **HEAD | {"ended": T0 + 1800})
    assert lines(a_report(ALL, head))["shared filesystem"] == "0.120833"  # half of 0.241667


DAY, GIB = 86_400, 2**30
MIDNIGHT = T0 - T0 % DAY  # 2026-11-21
OLD_HEAD = HEAD | {"launched": MIDNIGHT - 9 * DAY}


def charges(report, name):
    """Return amount, seconds, source and age of a line's charges."""
    return [
        (row["usd"], row["seconds"], row["price_source"], row["price_as_of"])
        for row in export.as_json(report, KEYS)["charges"]
        if row["instance"] == name
    ]


def test_objects_cost_what_cloudwatch_measured_of_each_day():
    """Take 720 GiB for a day, then twice that for half.

    That is 24 and 24 GB-months, at 0.023.
    """
    sizes = {MIDNIGHT: 720 * GIB, MIDNIGHT + DAY: 1440 * GIB}
    metrics = Metrics({day: StoredBytes(size, 0, day) for day, size in sizes.items()})
    head = an_instance("i-head", **OLD_HEAD)
    report = a_report(ALL, head, since=MIDNIGHT, hours=36, metrics=metrics)
    ((usd, _, source, as_of),) = charges(report, "objects")
    assert (usd, source) == ("1.104000", "contract")
    assert as_of
    assert report.instances["objects"].instance_type == "S3: 1,440.000 GiB on 2026-11-22"
    assert not any(note.startswith("objects") for note in report.notes)


def test_a_day_whose_size_is_late_has_the_last_one_and_says_of_which_day():
    metrics = Metrics({MIDNIGHT: StoredBytes(720 * GIB, 0, MIDNIGHT - DAY)})
    head = an_instance("i-head", **OLD_HEAD)
    report = a_report(ALL, head, since=MIDNIGHT + 2 * DAY, hours=24, metrics=metrics)
    assert lines(report)["objects"] == "0.552000"
    assert report.instances["objects"].instance_type == "S3: 720.000 GiB on 2026-11-20"


def test_days_before_the_first_size_are_an_unknown_part():
    metrics = Metrics({MIDNIGHT + DAY: StoredBytes(720 * GIB, 0, MIDNIGHT + DAY)})
    head = an_instance("i-head", **OLD_HEAD)
    report = a_report(ALL, head, since=MIDNIGHT, hours=48, metrics=metrics)
    (unknown, known) = charges(report, "objects")
    assert (unknown[0], known[0]) == (None, "0.552000")
    assert float(unknown[1]) == float(known[1]) == DAY
    assert f"objects: {NO_SIZE}" in report.notes


def test_bytes_in_another_storage_class_are_unknown_beside_what_is_known():
    metrics = Metrics({MIDNIGHT: StoredBytes(720 * GIB, 1, MIDNIGHT)})
    head = an_instance("i-head", **OLD_HEAD)
    report = a_report(ALL, head, since=MIDNIGHT, hours=24, metrics=metrics)
    assert [row[0] for row in charges(report, "objects")] == ["0.552000", None]
    assert f"objects: {OTHER_CLASSES}" in report.notes


def test_nat_traffic_is_spread_over_the_clusters_time_of_its_day():
    """Take 100 GiB of a day in which it lived 6 hours.

    A report has 3 of these.
    """
    metrics = Metrics({}, {MIDNIGHT: 100 * GIB})
    head = an_instance("i-head", **HEAD | {"launched": MIDNIGHT + 18 * 3600})
    day = a_report(ALL, head, since=MIDNIGHT, hours=24, metrics=metrics)
    assert lines(day)["NAT traffic"] == "4.500000"
    half = a_report(ALL, head, since=MIDNIGHT + 12 * 3600, hours=9, metrics=metrics)
    assert lines(half)["NAT traffic"] == "2.250000"
    later = a_report(ALL, head, since=MIDNIGHT + 12 * 3600, hours=36, metrics=metrics)
    assert [row[0] for row in charges(later, "NAT traffic")] == ["4.500000", None]
    assert f"NAT traffic: {NO_BYTES}" in later.notes


def test_what_has_no_price_stays_unknown_whatever_was_measured():
    metrics = Metrics({MIDNIGHT: StoredBytes(GIB, 0, MIDNIGHT)}, {MIDNIGHT: GIB})
    prices = replace(ALL, s3=None, nat_gb=None)
    report = a_report(prices, an_instance("i-head", **OLD_HEAD), metrics=metrics)
    assert lines(report)["objects"] is lines(report)["NAT traffic"] is None
    assert "objects, NAT traffic: no price in cluster.yaml: its cost is unknown" in report.notes
