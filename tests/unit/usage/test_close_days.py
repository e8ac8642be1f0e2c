"""Days closed from records: written once, corrected visibly, and equal to the exact engine."""

import contextlib
from dataclasses import asdict, dataclass, replace

import pytest

from slurmplugins.slurm import sacct
from tests.fakes.slurmdbd import NAMES, Row
from tests.unit.accounting.test_records import DAY, HOUR, T0, Cluster, entry
from tests.unit.usage.record_store import Person, copy_buckets, lines
from tests.unit.usage.test_read_records import page
from toolkit.accounting.charges import Component
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.report import Key
from toolkit.usage import closed_store, cluster_store, database as databases
from toolkit.usage.errors import DayNotKnown


@dataclass
class OnNode(Row):
    """A row of a job on the second node."""

    def text(self, token):
        values = super().text(token).rstrip("\n").split(sacct.delimiter(token))
        values[NAMES.index("NodeList")] = "gpu-002"
        return sacct.delimiter(token).join(values) + "\n"


@dataclass
class Held(Row):
    """A row of a job that was held until its start."""

    def text(self, token):
        values = super().text(token).rstrip("\n").split(sacct.delimiter(token))
        values[NAMES.index("Eligible")] = str(self.eligible)
        return sacct.delimiter(token).join(values) + "\n"


DAYS = 4
NOW = T0 + DAYS * DAY


@pytest.fixture(scope="module")
def lived():
    cluster = Cluster()
    cluster.live(T0, NOW)
    return cluster


@pytest.fixture
def cluster(lived):
    """The cluster, to whose bucket a test may add."""
    cluster = Cluster()
    copy_buckets(lived, cluster)
    return cluster


@pytest.fixture
def person(cluster, tmp_path):
    person = Person(cluster, tmp_path / "store")
    person.read(NOW)
    return person


def test_a_closed_time_has_the_charges_of_one_that_is_computed(person):
    results = person.close(NOW)
    assert [item.day for item in results] == [T0 + day * DAY for day in range(DAYS - 1)]
    report = person.report(T0, T0 + 3 * DAY, NOW)
    exact = person.anew(T0, T0 + 3 * DAY, NOW)
    assert report.closed.is_whole
    assert lines(report) == lines(exact)
    assert report.components() == exact.components()
    assert [vars_of(group) for group in report.groups([Key.JOB])] == [
        vars_of(group) for group in exact.groups([Key.JOB])
    ]


def vars_of(group):
    return group.key_values, group.jobs, group.attempts, group.seconds, dict(group.micro)


def test_a_closed_day_is_written_once(person):
    person.close(NOW)
    before = files(person)
    assert person.close(NOW) == []
    person.read(NOW + HOUR)
    assert person.close(NOW + HOUR) == []
    assert files(person) == before


def files(person):
    return {
        path.relative_to(person.store.folder): path.read_bytes()
        for path in sorted(person.store.folder.glob("closed*/*/*"))
    }


def failed_late():
    """Return the later row of a job of the second day."""
    begun = T0 + DAY + 6 * HOUR
    return Row(begun // HOUR, begun // HOUR, begun + 60, begun + 1740, state="NODE_FAIL")


def test_reading_and_closing_share_an_open_database(person):
    """The command opens one; whoever only closes opens its own."""
    with person.store.working() as outer:
        person.close(NOW)
        with person.store.working() as inner:
            assert inner is outer
        assert outer.database.value("SELECT 1") == 1, "it stays open to the end of the first block"
    with person.store.working() as other:
        assert other is not outer


def test_a_late_row_is_a_visible_correction(person, cluster):
    """slurmdbd learns late that a job failed: its work was lost."""
    person.close(NOW)
    before = files(person)
    page(cluster, [failed_late()], NOW + HOUR)
    person.read(NOW + HOUR)
    report = person.report(T0, T0 + 3 * DAY, NOW + HOUR)
    assert any("toolkit usage close" in note for note in report.notes)
    (result,) = person.close(NOW + HOUR)
    assert result.day == T0 + DAY
    assert result.correction.old == result.correction.new, "the same money, another component"
    report = person.report(T0, T0 + 3 * DAY, NOW + HOUR)
    exact = person.anew(T0, T0 + 3 * DAY, NOW + HOUR)
    assert lines(report) == lines(exact)
    assert [item.day for item in report.closed.corrections] == [T0 + DAY]
    after = files(person)
    charges = {path: body for path, body in before.items() if path.parts[0] == "closed"}
    assert charges.items() <= after.items(), "no row that was closed is written anew"
    assert person.close(NOW + 2 * HOUR) == []


def test_records_that_are_read_behind_a_plan_are_corrected_by_the_next(person, cluster):
    person.close(NOW)
    planned = person.plan()
    page(cluster, [failed_late()], NOW + HOUR)
    person.read(NOW + HOUR)
    assert person.execute(planned, NOW + HOUR) == []
    (result,) = person.close(NOW + HOUR)
    assert (result.day, result.correction is None) == (T0 + DAY, False)


@pytest.mark.parametrize(("kind", "days"), [(Held, 1), (Row, 3)])
def test_a_job_that_was_held_changes_no_day_before_its_release(person, cluster, kind, days):
    person.close(NOW)
    begun = T0 + 2 * DAY + 6 * HOUR + 1900
    page(cluster, [kind(9001, 9001, begun, begun + 60, submit=T0, state="COMPLETED")], NOW + HOUR)
    person.read(NOW + HOUR)
    assert person.plan().checked_days == tuple(T0 + day * DAY for day in range(3)[-days:])


def test_prices_of_cluster_yaml_that_changed_correct_no_closed_day(person, cluster):
    person.close(NOW)
    page(cluster, [failed_late()], NOW + HOUR)
    person.read(NOW + HOUR)
    person.sources = replace(person.sources, cost_policy=CostPolicy(boot=Payer.CLUSTER))
    planned = person.plan()
    assert T0 + DAY in planned.other_settings
    assert planned.checked_days == ()
    before = files(person)
    assert person.close(NOW + HOUR) == []
    assert files(person) == before
    assert person.plan() == planned, "the next run tells it again"
    results = person.close(NOW + HOUR, again_from=T0 + DAY)
    assert [item.day for item in results] == [T0 + DAY, T0 + 2 * DAY]
    exact = person.anew(T0 + DAY, T0 + 3 * DAY, NOW + HOUR)
    assert lines(person.report(T0 + DAY, T0 + 3 * DAY, NOW + HOUR)) == lines(exact)


def test_a_report_that_is_partly_closed_has_the_charges_of_one_that_is_computed(person):
    person.close(NOW, through=T0 + DAY)
    for since, until in (
        (T0, NOW),
        (T0 + HOUR // 3, NOW - HOUR),
        (T0 + HOUR // 3, T0 + 2 * DAY),
        (T0 - 5 * DAY, T0 + 2 * DAY + 17),
    ):
        report = person.report(since, until, NOW)
        exact = person.anew(since, until, NOW)
        assert lines(report) == lines(exact)
        assert report.window == exact.window
        assert (report.gross, report.refund) == (exact.gross, exact.refund)
        assert set(report.instances) == set(exact.instances)


def test_a_node_that_idles_over_midnight_is_a_gap_only_if_its_next_use_is_in_the_report(tmp_path):
    cluster = Cluster()
    cluster.live(T0, T0 + 20 * HOUR)
    name, node = "i-idle", T0 + 20 * HOUR
    cluster.entries[name] = replace(entry(name, node), node="gpu-002")
    used = Row(5001, 5001, node + 60, node + HOUR, state="COMPLETED")
    again = Row(5002, 5002, T0 + DAY + 2 * HOUR, T0 + DAY + 3 * HOUR, state="COMPLETED")
    cluster.accounting.rows[5001] = OnNode(**asdict(used))
    for now in range(node, T0 + DAY + HOUR, HOUR // 2):
        cluster.write_records(now)
    person = Person(cluster, tmp_path)
    person.read(T0 + DAY + HOUR)
    person.close(T0 + DAY + HOUR)
    closed = person.report(T0, T0 + DAY, T0 + DAY + HOUR)
    assert closed.components()[Component.IDLE_TAIL]
    cluster.accounting.rows[5002] = OnNode(**asdict(again))
    cluster.entries[name] = replace(
        cluster.entries[name], ended_at=float(T0 + DAY + 4 * HOUR), end_cause="suspend"
    )
    later = T0 + DAY + 5 * HOUR
    for now in range(T0 + DAY + HOUR, later, HOUR // 2):
        cluster.write_records(now)
    for since, until in ((T0, T0 + DAY), (T0, later)):
        report, exact = person.report(since, until, later), person.anew(since, until, later)
        assert lines(report) == lines(exact)
    person.read(later)
    assert person.close(later) == [], "the day by itself has an idle tail as before"
    for since, until in ((T0, T0 + DAY), (T0, later)):
        report, exact = person.report(since, until, later), person.anew(since, until, later)
        assert lines(report) == lines(exact)


def test_a_day_whose_idle_node_ended_behind_midnight_is_not_weighed_again(tmp_path):
    """Know that no use can come any more."""
    cluster = Cluster()
    cluster.live(T0, T0 + 20 * HOUR)
    ended = replace(
        entry("i-idle", T0 + 20 * HOUR), node="gpu-002", ended_at=float(T0 + DAY + HOUR),
        end_cause="suspend",
    )  # fmt: skip
    used = Row(5001, 5001, T0 + 20 * HOUR + 60, T0 + 21 * HOUR, state="COMPLETED")
    cluster.accounting.rows[5001] = OnNode(**asdict(used))
    cluster.entries["i-idle"] = ended
    for now in range(T0 + 20 * HOUR, T0 + DAY + 4 * HOUR, HOUR // 2):
        cluster.write_records(now)
    person = Person(cluster, tmp_path)
    person.read(T0 + DAY + 4 * HOUR)
    person.close(T0 + DAY + 4 * HOUR)
    assert closed_store.read(person.store).days[T0].has_open_tail is False
    assert person.plan().checked_days == ()
    exact = person.anew(T0, T0 + DAY, T0 + DAY + 4 * HOUR)
    report = person.report(T0, T0 + DAY, T0 + DAY + 4 * HOUR)
    assert report.components()[Component.IDLE_TAIL] == exact.components()[Component.IDLE_TAIL] > 0


def test_days_that_the_records_do_not_cover_are_not_closed(person):
    with pytest.raises(DayNotKnown, match="2026-11-23"):
        person.plan(through=NOW)
    assert person.plan().new_days == (T0, T0 + DAY, T0 + 2 * DAY)
    empty = Person(Cluster(), person.store.folder / "other")
    with pytest.raises(DayNotKnown, match="no records"):
        empty.plan()


def test_a_closing_that_is_killed_anywhere_is_repeated(person, tmp_path, monkeypatch):
    whole = Person(person.cluster, tmp_path / "whole")
    whole.read(NOW)
    whole.close(NOW)
    left = [0]
    write = cluster_store.write_atomically
    dump = closed_store.quoted

    def dying(work):
        def step(*arguments, **named):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return work(*arguments, **named)

        return step

    monkeypatch.setattr(cluster_store, "write_atomically", dying(write))
    monkeypatch.setattr(closed_store, "quoted", dying(dump))
    for steps in range(7):
        left[0] = steps
        with contextlib.suppress(KeyboardInterrupt):
            person.close(NOW)
    left[0] = 10**9
    person.close(NOW)
    for item in (person, whole):
        assert sum(day.micro for day in closed_store.read(item.store).days.values()) > 0
    assert files(person) == files(whole)


def test_other_tools_add_closed_days_up(person):
    person.close(NOW)
    with databases.opened() as database:
        pattern = str(person.store.folder / "closed" / "*" / "*.parquet")
        rows = database.rows(
            f"SELECT account, user_name, status, sum(micro)::BIGINT FROM '{pattern}'"  # noqa: S608
            " WHERE attempt IS NOT NULL GROUP BY ALL"
        )
    (row,) = rows
    assert row[:3] == ("vision", "ada", "estimated")
    exact = person.anew(T0, T0 + 3 * DAY, NOW)
    assert (
        abs(row[3] - sum(group.total for group in exact.groups([Key.USER]) if group.has_jobs)) < 3
    )
