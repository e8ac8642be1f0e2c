"""Closed days with what CloudWatch measured: what is known later is a correction."""

from dataclasses import replace
from decimal import Decimal

import pytest

from tests.unit.accounting.test_records import DAY, HOUR, T0, Cluster, entry
from tests.unit.usage.record_store import Person, lines, person_of
from tests.unit.usage.test_read_records import GIB, metrics
from toolkit.accounting.storage import Infrastructure, Sizes, UnitPrices
from toolkit.usage import database as databases

DAYS = 4
NOW = T0 + DAYS * DAY + 2 * HOUR
PRICES = UnitPrices(as_of=T0, s3=Decimal("0.023"), nat_gb=Decimal("0.045"))
INFRASTRUCTURE = Infrastructure(Sizes(1200, 50, 100, 40, 30, has_nat=True), PRICES)


@pytest.fixture(scope="module")
def lived():
    """A cluster with a head node, and no record of metrics."""
    cluster = Cluster()
    cluster.entries["i-head"] = replace(
        entry("i-head", T0), node="head", pool="head", lifecycle="on-demand"
    )
    cluster.live(T0, T0 + 2 * HOUR)
    for now in range(T0 + 2 * HOUR, NOW + 1, HOUR):
        cluster.write_records(now)
    return cluster


@pytest.fixture
def person(lived, tmp_path):
    return person_of(lived, tmp_path / "store", infrastructure=INFRASTRUCTURE)


def measure(person, *days, **more):
    for day in days:
        metrics(person.cluster, T0 + day * DAY, (day + 1) * 720 * GIB, passed=200 * GIB, **more)


def usd_of(report, name):
    """Return a line's known dollars, and whether more is unknown."""
    (cost,) = [item for item in report.costs if item.instance_id == name]
    return Decimal(cost.net).scaleb(-6), cost.has_unknown


def test_closed_days_have_the_amounts_of_their_days(person):
    measure(person, *range(DAYS))
    person.read(NOW)
    assert len(person.close(NOW)) == DAYS
    report = person.report(T0, T0 + 2 * DAY, NOW)
    assert report.closed.is_whole
    assert usd_of(report, "objects") == (Decimal("1.656"), False)  # 24 and 48 GB-months
    assert usd_of(report, "NAT traffic") == (Decimal(18), False)
    assert lines(report) == lines(person.anew(T0, T0 + 2 * DAY, NOW))
    assert report.instances["objects"].instance_type == "S3: 1,440.000 GiB on 2026-11-22"
    part = (T0 + HOUR, T0 + 3 * DAY + HOUR)
    assert lines(person.report(*part, NOW)) == lines(person.anew(*part, NOW))
    assert person.close(NOW) == [], "nothing changes by itself"


def test_exact_amounts_of_any_size_have_the_denominator_that_sql_adds_up(person):
    """Take odd bytes, whose days would have large denominators."""
    for day in range(DAYS):
        metrics(person.cluster, T0 + day * DAY, 3**26 + 7 * day, passed=2 * (3**25 + day))
    person.read(NOW)
    person.close(NOW)
    with databases.opened() as database:
        pattern = str(person.store.folder / "closed" / "*" / "*.parquet")
        rows = database.rows(
            f"SELECT DISTINCT whole FROM '{pattern}' WHERE instance_id IN ('objects', 'NAT traffic')"  # noqa: S608, E501
        )
    assert rows == [(1,)]
    assert lines(person.report(T0, T0 + 2 * DAY, NOW)) == lines(person.anew(T0, T0 + 2 * DAY, NOW))


def test_a_size_that_is_late_is_the_last_one_and_a_days_bytes_are_unknown(person):
    measure(person, 0, 1)
    person.read(NOW)
    person.close(NOW)
    report = person.report(T0, T0 + 3 * DAY, NOW)
    assert usd_of(report, "objects") == (Decimal("2.76"), False)  # 24, 48 and again 48
    assert usd_of(report, "NAT traffic") == (Decimal(18), True)
    assert "of 2026" not in report.instances["objects"].instance_type
    assert report.instances["objects"].instance_type.endswith("on 2026-11-22")
    assert lines(report) == lines(person.anew(T0, T0 + 3 * DAY, NOW))


def test_an_object_that_comes_late_is_a_visible_correction(person):
    measure(person, 0, 1)
    person.read(NOW)
    person.close(NOW)
    measure(person, 2)
    person.read(NOW)
    assert person.close(NOW)[0].day == T0 + 2 * DAY
    report = person.report(T0, T0 + 3 * DAY, NOW)
    assert usd_of(report, "objects") == (Decimal("3.312"), False)
    assert usd_of(report, "NAT traffic") == (Decimal(27), False)
    assert [item.day for item in report.closed.corrections] == [T0 + 2 * DAY]
    assert lines(report) == lines(person.anew(T0, T0 + 3 * DAY, NOW))


def test_a_day_that_is_written_again_corrects_no_closed_day(person):
    """A head that lost its memory asks CloudWatch anew."""
    measure(person, *range(DAYS))
    person.read(NOW)
    person.close(NOW)
    before = lines(person.report(T0, T0 + 3 * DAY, NOW))
    metrics(person.cluster, T0, 999, written=NOW + HOUR)
    person.read(NOW + HOUR, whole=True)
    assert person.plan().checked_days == ()
    measure(person, 1, written=NOW + HOUR, others=[("GlacierStorage", 5)])
    person.read(NOW + HOUR, whole=True)
    corrected = [item.day for item in person.close(NOW + HOUR)]
    assert corrected == [T0 + DAY], "of this day it says something that nobody knew"
    after = lines(person.report(T0, T0 + 3 * DAY, NOW))
    assert [line for line in after if line[-1]] == [line for line in before if line[-1]]


def test_without_a_price_of_what_is_measured_no_object_is_fetched(person):
    measure(person, 0)
    prices = UnitPrices(as_of=T0, ebs=Decimal("0.08"), cross_zone_gb=Decimal("0.01"))
    person.sources = replace(person.sources, infrastructure=replace(INFRASTRUCTURE, prices=prices))
    with_metrics = Person(person.cluster, person.store.folder, infrastructure=INFRASTRUCTURE)
    calls = person.cluster.s3.calls

    def gets(someone):
        calls.clear()
        someone.anew(T0, T0 + DAY, NOW)
        return calls["get"]

    assert gets(with_metrics) == gets(person) + 1
