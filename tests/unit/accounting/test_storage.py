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
from toolkit.accounting.storage import Infrastructure, Sizes, UnitPrices, gb_months

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


def a_report(prices, *instances, sizes=SIZES, hours=1):
    return build(
        cluster="demo",
        attempts=[],
        instances=instances or [an_instance("i-head", **HEAD)],
        shapes={},
        book=a_book(),
        window=Window(T0, T0 + hours * 3600),
        now=T0 + hours * 3600,
        infrastructure=Infrastructure(sizes, prices),
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
    assert any(
        note.startswith("objects, NAT traffic, traffic between zones: its size")
        for note in report.notes
    )
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
