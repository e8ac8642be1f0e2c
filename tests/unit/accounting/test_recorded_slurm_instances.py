"""Slurm's own list of instances, from records of a head that does not answer any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmplugins.head.slurm_instance_days import SlurmInstanceDays
from slurmplugins.model import records
from tests.fakes.slurmdbd import Row
from tests.unit.accounting.samples import T0 as START
from tests.unit.accounting.test_records import (
    DAY,
    HOUR,
    KEPT,
    OWN,
    T0,
    Cluster,
    SacctHead,
    entry,
    total,
)
from tests.unit.accounting.test_slurm_instances import line
from tests.unit.usage.record_store import Person
from toolkit.accounting import recorded_slurm_instances, slurm_instances
from toolkit.accounting.records import Buckets
from toolkit.accounting.slurm_instances import SlurmInstances
from toolkit.errors import HeadCommandFailed

NOT_KNOWN = "Slurm's own list of instances is not known"


class Head(SacctHead):
    """A head that answers sacct and sacctmgr."""

    def run(self, argv, *, timeout=60):
        if "sacctmgr" not in argv:
            return super().run(argv, timeout=timeout)
        return self.accounting.instances("demo", 0)


def write_day(cluster, now):
    """Write Slurm's list as the head does when a day is over."""
    SlurmInstanceDays("demo", "demo", cluster.accounting, cluster.store).run(now - DAY, now)


@pytest.fixture
def cluster():
    """A cluster whose bucket lost the record of an instance."""
    cluster = Cluster()
    start, end = T0 + HOUR, T0 + 2 * HOUR
    cluster.accounting.rows = {1: Row(1, 7, start + 60, end - 60, state="COMPLETED")}
    text = line(Start=str(start), End=str(end), InstanceId="i-9", Extra="")
    cluster.accounting.instance_lines[start] = text
    cluster.write_records(T0 + DAY + 1800)
    return cluster


def test_an_instance_that_slurm_alone_knows_costs_the_same_when_the_head_is_gone(cluster):
    now = T0 + DAY + 1800
    live = cluster.report(T0, T0 + DAY, now, Head(cluster.accounting))
    assert (list(live.instances), total(live) > 0) == (["i-9"], True)
    write_day(cluster, T0 + DAY)
    gone = cluster.report(T0, T0 + DAY, now, own="destroyed")
    assert (list(gone.instances), total(gone)) == (["i-9"], total(live))
    assert not [note for note in gone.notes if NOT_KNOWN in note]
    cluster.accounting.instance_lines.clear()  # slurmdbd has purged it
    purged = cluster.report(T0, T0 + DAY, now, Head(cluster.accounting))
    assert total(purged) == total(live)


def test_a_report_without_slurms_list_says_so_where_a_job_lacks_its_instance(cluster):
    now = T0 + DAY + 1800
    report = cluster.report(T0, T0 + DAY, now)
    assert [note for note in report.notes if NOT_KNOWN in note]
    asked = cluster.report(T0, T0 + DAY, now, SacctHead(cluster.accounting))
    assert not [note for note in asked.notes if NOT_KNOWN in note]


def test_a_report_whose_ledger_has_all_says_nothing_of_slurms_list():
    cluster = Cluster()
    cluster.live(T0, T0 + 6 * HOUR)
    report = cluster.report(T0, T0 + 4 * HOUR, T0 + 6 * HOUR)
    assert not [note for note in report.notes if "Slurm's own list" in note]


def test_a_list_that_ends_before_the_report_is_named_with_its_time(cluster):
    write_day(cluster, T0 + DAY)
    now = T0 + DAY + 2 * HOUR
    cluster.accounting.rows[2] = Row(2, 8, T0 + DAY + 60, now - 1800, state="COMPLETED")
    cluster.write_records(now)
    report = cluster.report(T0, now, now)
    known = "Slurm's own list of instances is known up to 2026-11-22 00:00:00 UTC alone"
    assert [note for note in report.notes if known in note]


def test_a_closed_day_that_is_weighed_again_without_a_head_is_not_corrected(cluster, tmp_path):
    now = T0 + DAY + HOUR
    known = entry("i-1", T0 + 5 * HOUR)
    cluster.entries["i-1"] = replace(known, ended_at=float(now - 60), end_cause="suspend")
    cluster.write_records(now)
    write_day(cluster, T0 + DAY)
    person = Person(cluster, tmp_path / "store")
    without_head = person.sources
    person.read(now)
    person.sources = replace(without_head, runner=Head(cluster.accounting))
    assert [item.day for item in person.close(now)] == [T0]
    person.sources = without_head
    assert person.close(now, again_from=T0) == []


def test_a_head_that_refuses_sacctmgr_is_as_one_that_is_gone(cluster):
    class NoSlurmdbd:
        def run(self, argv, *, timeout=60):
            raise HeadCommandFailed("exit code 1")

    write_day(cluster, T0 + DAY)
    report = cluster.report(T0, T0 + DAY, T0 + DAY + 1800, NoSlurmdbd())
    assert list(report.instances) == ["i-9"]


def test_the_newer_row_of_a_life_counts_unless_it_alone_has_no_end():
    def rows(end):
        return slurm_instances.parse(line(End=end), "demo")

    for older, newer, expected in (
        ("Unknown", str(START + 60), START + 60),
        (str(START + 60), "Unknown", START + 60),
        (str(START + 60), str(START + 90), START + 90),
        ("Unknown", "Unknown", None),
    ):
        (item,) = slurm_instances.merged(rows(older), rows(newer)).instances
        assert item.ended == expected


def key_of(day):
    return records.parse_key(records.slurm_instances_key(day, b"x"))


@pytest.mark.parametrize("length", [1, 7, 31, 92])
@pytest.mark.parametrize("first", [0, 17, 150])
def test_few_objects_have_every_start_of_a_time(length, first):
    """Each looks back 30 days.

    One after a gap looks back to the object before it.
    """
    kept = [day for day in range(first, 300) if not 100 < day < 145]
    keys = [key_of(T0 + day * DAY) for day in kept]
    since, until = T0 + 160 * DAY, T0 + (160 + length) * DAY
    chosen = recorded_slurm_instances.wanted(
        [key for key in keys if key.since >= since - 60 * DAY], since, until
    )
    days = [(key.since - T0) // DAY for key in chosen]
    covered = {day - back for day in days for back in range(31)}
    assert set(range(160, 160 + length)) <= covered
    assert len(days) <= 3 + length // 29
    assert max(days) >= 160 + length


def test_a_day_behind_a_gap_is_followed_by_the_last_one_before_it():
    keys = [key_of(T0), key_of(T0 + 50 * DAY)]
    chosen = recorded_slurm_instances.wanted(keys, T0, T0 + 60 * DAY)
    assert [key.since for key in chosen] == [T0, T0 + 50 * DAY]


def test_a_damaged_day_is_set_aside_and_makes_no_cost_unknown(cluster):
    write_day(cluster, T0 + DAY)
    key = next(key for key in cluster.s3.buckets[KEPT] if key.startswith(records.SLURM_INSTANCES))
    cluster.s3.buckets[KEPT][key] = b"damage"
    content = read(cluster)
    assert content.instances == ()
    assert [(item.name, item.has_unknown_cost) for item in content.set_aside] == [(key, False)]


def test_a_day_with_other_fields_is_set_aside(cluster):
    header = records.first_line("slurm-instances", "demo", (T0, T0 + DAY), T0 + DAY, fields=["A"])
    body = records.pack(header, line())
    cluster.s3.put(KEPT, records.slurm_instances_key(T0, body), body, T0 + DAY)
    content = read(cluster)
    assert (content.instances, len(content.set_aside), content.reach) == ((), 1, 0)


def test_without_records_nothing_is_known():
    assert read(Cluster()) == SlurmInstances(reach=0)


def read(cluster):
    return recorded_slurm_instances.read(Buckets(cluster.s3, OWN, KEPT), "demo", T0, T0 + DAY)
