"""A report of records: without a head, without the cluster's bucket, and at no cost of age."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from slurmplugins.head.instance_pages import InstancePages
from slurmplugins.head.price_days import PriceDays
from slurmplugins.head.sacct_pages import PageWriter
from slurmplugins.head.sacct_windows import Moment, Place
from slurmplugins.model import records
from slurmplugins.reconciler.instance_ledger import LedgerEntry, object_key, to_json
from tests.fakes.record_bucket import Adder, FakeS3
from tests.fakes.slurmdbd import NAMES, FakeAccounting, Row
from toolkit.accounting import recorded_prices
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.collect import Sources, collect
from toolkit.accounting.records import (
    Buckets,
    RecordsInS3,
    attempts_of,
    list_pages,
    read_pages,
)
from toolkit.accounting.report import Key
from toolkit.errors import HeadCommandFailed, HeadNotReady

HOUR, DAY = 3600, 86_400
T0 = 1_795_219_200  # 2026-11-21 00:00 UTC
OWN, KEPT = "demo", "demo-bak"


class NoEc2:
    """An EC2 that has forgotten all instances, and has no prices."""

    def __init__(self) -> None:
        self.price_calls = []

    def get_paginator(self, name):
        self.listing = name
        return self

    def paginate(self, **arguments):
        if self.listing == "describe_instances":
            yield {"Reservations": []}
        else:
            self.price_calls.append(arguments)
            yield {"SpotPriceHistory": []}


class NoHead:
    """A head that is stopped."""

    def run(self, argv, *, timeout=60):
        raise HeadNotReady("head node i-0 is stopped")


class SacctHead:
    """A head that answers sacct by its accounting."""

    def __init__(self, accounting) -> None:
        self.accounting = accounting
        self.calls = 0

    def run(self, argv, *, timeout=60):
        if "--helpformat" in argv:
            return " ".join(NAMES)
        if "sacctmgr" in argv:
            return ""
        self.calls += 1
        option = next(word for word in argv if word.startswith("--delimiter="))
        token = option.removeprefix("--delimiter=").strip("\x1f")
        return "".join(row.text(token) for row in self.accounting.rows.values())


class Cluster:
    """A cluster that writes records every half hour, with a job of half an hour each hour."""

    def __init__(self) -> None:
        self.s3 = FakeS3({OWN: {}, KEPT: {}})
        self.store = Adder(self.s3, KEPT)
        self.accounting = FakeAccounting()
        self.place = Place(settled=T0, read=T0, moment=Moment(T0, 0.0, "b"))
        self.entries: dict[str, LedgerEntry] = {}
        self.instances: int | None = None
        self.ec2 = NoEc2()

    def live(self, since: int, until: int) -> None:
        """Run jobs and write records from one time to another."""
        for now in range(since, until, HOUR // 2):
            number = now // HOUR
            name = f"i-{number}"
            if now % HOUR == 0:
                self.entries[name] = entry(name, now)
                self.accounting.rows[number] = Row(number, number, now + 60)
            else:
                self.entries[name] = replace(
                    self.entries[name], ended_at=float(now), end_cause="suspend"
                )
                self.accounting.rows[number] = replace(
                    self.accounting.rows[number], end=now - 60, state="COMPLETED"
                )
            self.s3.put(
                OWN, object_key(name), json.dumps(to_json(self.entries[name])).encode(), now
            )
            self.write_records(now)

    def write_records(self, now: int) -> None:
        self.store.now = now
        current = [
            item
            for item in self.entries.values()
            if item.ended_at is None or item.ended_at > now - 2 * HOUR
        ]
        self.entries = {item.instance_id: item for item in current}
        pages = InstancePages("demo", None, self.store, lambda: current)
        self.instances = pages.run(now if self.instances is None else self.instances, now)
        old = {key: row for key, row in self.accounting.rows.items() if row.end < now - 3 * HOUR}
        for key in old if now % DAY == 0 else ():  # slurmdbd would find them by an index
            if self.accounting.rows[key].end:
                del self.accounting.rows[key]
        PageWriter("demo", self.accounting, self.store, self.save).run(
            self.place, Moment(now, float(now - T0), "b")
        )

    def save(self, place: Place) -> None:
        self.place = place

    def report(self, since: int, until: int, now: int, runner=None, own: str = OWN):
        sources = Sources(
            cluster="demo",
            region="us-east-1",
            bucket=own,
            ec2=self.ec2,
            s3=self.s3,
            runner=runner or NoHead(),
            records_bucket=KEPT,
        )
        return collect(sources, Window(since, until), now, "t0k3n", Policy())


def entry(name: str, launched: int) -> LedgerEntry:
    return LedgerEntry(
        instance_id=name, node="gpu-001", pool="gpu", partition="gpu", attempt="a",
        type="g5.xlarge", zone="us-east-1a", lifecycle="on-demand", launched_at=float(launched),
        price="1.006", running_at=float(launched + 10),
    )  # fmt: skip


def total(report) -> int:
    return sum(report.components().values())


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster()
    cluster.live(T0, T0 + 12 * HOUR)
    return cluster


def test_a_report_needs_neither_the_head_nor_the_clusters_bucket(cluster):
    now = T0 + 12 * HOUR
    report = cluster.report(T0, now, now, own="destroyed")
    assert len(report.costs) == 12
    assert len([row for row in report.groups([Key.JOB]) if row.has_jobs]) == 12
    assert report.set_aside == ()
    (note,) = [note for note in report.notes if "the head node does not answer" in note]
    assert "2026-11-21 11:30:00 UTC" in note
    assert "head node i-0 is stopped" in note


def test_the_head_adds_what_is_newer_than_the_last_page(cluster):
    now = T0 + 12 * HOUR + 600
    head = SacctHead(FakeAccounting({9: Row(999, 999, now - 500, now - 100, state="COMPLETED")}))
    report = cluster.report(T0, now, now, head)
    assert 999 in report.attempts
    assert len(report.attempts) == 13
    assert not any("does not answer" in note for note in report.notes)


def test_the_head_adds_what_slurmdbd_lacked_when_the_last_pages_were_written(cluster):
    """Ask it from the settled place on, which the head's status tells."""
    now = T0 + 12 * HOUR
    status = json.dumps({"attempts": now, "settled": T0 + 2 * HOUR}).encode()
    head = SacctHead(FakeAccounting())
    cluster.s3.put(OWN, records.STATUS, status, now)
    try:
        cluster.report(T0, T0 + 11 * HOUR, now, head)
        stopped = cluster.report(T0, T0 + 11 * HOUR, now)
    finally:
        del cluster.s3.buckets[OWN][records.STATUS]
    assert head.calls == 1
    assert any("up to 2026-11-21 02:00:00 UTC" in note for note in stopped.notes)


def test_without_any_record_the_heads_error_is_the_reports():
    with pytest.raises(HeadNotReady):
        Cluster().report(T0, T0 + HOUR, T0 + HOUR)


def test_a_head_without_slurmdbd_gives_the_same_sums(cluster):
    class NoSlurmdbd:
        def run(self, argv, *, timeout=60):
            raise HeadCommandFailed("sacct on the head node: exit code 1")

    now = T0 + 12 * HOUR
    live = SacctHead(cluster.accounting)
    expected = cluster.report(T0, T0 + 11 * HOUR, now, live)
    assert total(cluster.report(T0, T0 + 11 * HOUR, now, NoSlurmdbd())) == total(expected)
    assert live.calls == 0, "the records cover it"


def test_the_last_day_of_an_old_cluster_costs_as_many_calls_as_a_young_ones():
    """Count the calls on the third day and on the fortieth."""
    cluster = Cluster()
    calls = []
    for first, last in ((T0, T0 + 3 * DAY), (T0 + 3 * DAY, T0 + 40 * DAY)):
        cluster.live(first, last)
        cluster.s3.calls.clear()
        report = cluster.report(last - DAY, last, last)
        assert len(report.costs) == 24
        calls.append(dict(cluster.s3.calls))
    young, old = calls
    assert young == old
    assert len(cluster.s3.buckets[OWN]) == 40 * 24


def test_a_past_day_of_an_old_cluster_reads_that_day_alone():
    cluster = Cluster()
    cluster.live(T0, T0 + 20 * DAY)
    cluster.s3.calls.clear()
    report = cluster.report(T0 + 2 * DAY, T0 + 3 * DAY, T0 + 20 * DAY)
    assert len(report.costs) == 24
    assert cluster.s3.calls["get"] < 120


def test_a_job_that_ended_after_the_report_has_its_end(cluster):
    """Read the page of its end too.

    Lost work is known only then.
    """
    report = cluster.report(T0 + HOUR, T0 + HOUR + 900, T0 + 12 * HOUR)
    (attempt,) = [item for item in report.attempts.values() if item.started == T0 + HOUR + 60]
    assert attempt.ended == T0 + HOUR + 1740


def test_a_page_that_was_changed_is_set_aside(cluster):
    s3 = FakeS3({KEPT: dict(cluster.s3.buckets[KEPT])}, cluster.s3.written)
    key = next(key for key in s3.buckets[KEPT] if key.startswith(records.SACCT))
    s3.buckets[KEPT][key] = records.pack({"format": 1}, "another")
    listing = list_pages(s3, KEPT, records.SACCT, T0, T0 + DAY)
    pages, (aside,) = read_pages(s3, KEPT, listing.keys)
    assert aside.name == key
    assert len(pages) == len(listing.keys) - 1


def copy_of(cluster):
    """Return a cluster whose bucket a test may change."""
    copy = Cluster()
    copy.s3.buckets[KEPT] = dict(cluster.s3.buckets[KEPT])
    copy.s3.written = dict(cluster.s3.written)
    return copy


def sacct_keys(cluster):
    return [key for key in cluster.s3.buckets[KEPT] if key.startswith(records.SACCT)]


def put_page(cluster, **changes):
    """Write a page of sacct with a changed first line.

    Returns its key.
    """
    body = cluster.s3.buckets[KEPT][sacct_keys(cluster)[0]]
    header, content = records.unpack(body)
    changed = records.pack(header | changes, content)
    key = records.sacct_key(T0, T0 + HOUR, T0, changed)
    cluster.s3.put(KEPT, key, changed, T0 + HOUR)
    return key


@pytest.mark.parametrize("field", ["since", "until", "written"])
@pytest.mark.parametrize(
    "damage", [float("inf"), float("nan"), 1e300, 10**30, -1, True, None, "5", [5]]
)
def test_a_page_with_a_time_that_is_none_is_set_aside(cluster, field, damage):
    changed = copy_of(cluster)
    key = put_page(changed, **{field: damage})
    report = changed.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR)
    assert [item.name for item in report.set_aside] == [key]
    assert key in report.unknown_costs
    assert report.attempts == cluster.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR).attempts


@pytest.mark.parametrize(
    "names",
    [
        *([name for name in NAMES if name != lacking] for lacking in ("Cluster", "JobIDRaw")),
        *(["DBIndex"], [], None, "DBIndex", [1, 2, 3]),
    ],
)
def test_a_page_without_the_fields_of_an_attempt_is_set_aside(cluster, names):
    changed = copy_of(cluster)
    key = put_page(changed, fields=names)
    report = changed.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR)
    assert [item.name for item in report.set_aside] == [key]
    assert key in report.unknown_costs
    assert report.attempts == cluster.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR).attempts


@pytest.mark.parametrize(
    "line", ['["g5.xlarge", "us-east-1a", 5]', f'["g5.xlarge", "us-east-1a", {10**30}, "1"]', "5"]
)
def test_a_day_of_prices_with_a_line_that_is_none_is_set_aside(line):
    cluster = Cluster()
    header = records.first_line("prices", "demo", (T0, T0 + DAY), T0 + DAY, types=["g5.xlarge"])
    body = records.pack(header, f'["g5.xlarge", "us-east-1a", {T0}, "0.36"]\n{line}\n')
    key = records.prices_key("us-east-1", T0, body)
    cluster.s3.put(KEPT, key, body, T0 + DAY)
    stored = RecordsInS3(Buckets(cluster.s3, OWN, KEPT))
    found = stored.prices("us-east-1", {"g5.xlarge"}, T0, T0 + DAY)
    assert [item.name for item in found.set_aside] == [key]
    assert found.points == ()


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchKey", "KMS.DisabledException"])
def test_an_object_that_s3_refuses_is_set_aside_and_hides_no_other(cluster, code):
    changed = copy_of(cluster)
    instance_key = next(key for key in changed.s3.buckets[KEPT] if key.startswith("records/inst"))
    keys = {sacct_keys(changed)[3], instance_key}
    changed.s3.refusals = dict.fromkeys(keys, code)
    report = changed.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR)
    assert {item.name for item in report.set_aside} == keys
    assert keys <= set(report.unknown_costs)
    assert any(f"S3 refuses it ({code}), set aside, cost unknown" in note for note in report.notes)
    assert len(report.attempts) >= 10


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "KMS.ThrottlingException", "SlowDown", "NoSuchBucket"]
)
def test_an_error_that_concerns_more_than_an_object_ends_the_report(cluster, code):
    changed = copy_of(cluster)
    changed.s3.refusals = {sacct_keys(changed)[3]: code}
    with pytest.raises(ClientError, match=code):
        changed.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR)


def test_credentials_that_may_read_no_object_or_list_none_end_the_report(cluster):
    changed = copy_of(cluster)
    for refused in (changed.s3.buckets[KEPT], ["list"]):
        changed.s3.refusals = dict.fromkeys(refused, "AccessDenied")
        with pytest.raises(ClientError, match="AccessDenied"):
            changed.report(T0, T0 + 11 * HOUR, T0 + 12 * HOUR)


def test_two_attempts_of_one_database_index_are_both_counted():
    """Restore a backup: the database counts on from it.

    The jobs since then are others.
    """
    cluster = Cluster()
    cluster.accounting.rows = {1: Row(7, 70, T0 + 10, T0 + 50, state="COMPLETED")}
    cluster.write_records(T0 + HOUR)
    cluster.accounting.rows = {1: Row(7, 10_070, T0 + 4000, T0 + 5000, state="COMPLETED")}
    cluster.write_records(T0 + 2 * HOUR)
    listing = list_pages(cluster.s3, KEPT, records.SACCT, T0, T0 + DAY)
    attempts = attempts_of(read_pages(cluster.s3, KEPT, listing.keys)[0]).attempts
    assert [attempt.job_id for attempt in attempts] == ["70", "10070"]
    assert len({attempt.key for attempt in attempts}) == 2


def test_stored_prices_come_before_ec2_which_is_asked_for_the_rest():
    cluster = Cluster()
    store = Adder(cluster.s3, KEPT)
    saved = []
    days = PriceDays(
        "demo", "us-east-1", ["g5.xlarge"],
        lambda types, since, until: [("g5.xlarge", "us-east-1a", since - 5, "0.36")],
        store, saved.append,
    )  # fmt: skip
    assert days.run(T0, T0 + 2 * DAY + 2 * HOUR) == T0 + 2 * DAY
    assert saved == [T0 + DAY, T0 + 2 * DAY]
    stored = RecordsInS3(Buckets(cluster.s3, OWN, KEPT))

    def read(types, until):
        return recorded_prices.read(stored, cluster.ec2, "us-east-1", types, (T0 + 10, until))

    history, aside = read({"g5.xlarge"}, T0 + 2 * DAY)
    assert aside == ()
    assert cluster.ec2.price_calls == []
    spans = history.spans("g5.xlarge", "us-east-1a", T0 + 10, T0 + 2 * DAY)
    assert [str(span.price.usd_per_hour) for span in spans] == ["0.36", "0.36"]
    read({"g5.xlarge", "m7i.large"}, T0 + 2 * DAY)
    read({"g5.xlarge"}, T0 + 3 * DAY)
    first, second = cluster.ec2.price_calls
    assert first["InstanceTypes"] == ["m7i.large"]
    assert second["StartTime"].timestamp() == T0 + 2 * DAY
