"""The sums of a closed month: read in place of its days, and never of other days than these."""

import io
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
from rich.console import Console

from tests.fakes.slurmdbd import Row
from tests.unit.accounting.test_records import DAY, HOUR, T0, Cluster, Place
from tests.unit.usage.record_store import lines, person_of
from tests.unit.usage.test_read_records import page
from toolkit.accounting import terminal
from toolkit.accounting.allocation import Window
from toolkit.accounting.report import Key
from toolkit.usage import closed_store, database as databases, month_sums
from toolkit.usage.closed_report import split, summed_report

SINCE, FIRST = T0 + 8 * DAY, T0 + 10 * DAY
"""29 November, and 1 December."""
NOW = FIRST + 2 * DAY


@pytest.fixture(scope="module")
def lived():
    cluster = Cluster()
    cluster.place = Place(settled=SINCE, read=SINCE, moment=cluster.place.moment)
    cluster.live(SINCE, NOW)
    return cluster


@pytest.fixture
def person(lived, tmp_path):
    person = person_of(lived, tmp_path / "store")
    person.read(NOW)
    return person


def kept(person):
    return sorted((person.store.folder / month_sums.FOLDER).glob("*/*"))


@contextmanager
def november(person):
    """Make the month's report, which reads its charges when asked."""
    with database_and_november(person) as (_, report):
        yield report


@contextmanager
def database_and_november(person):
    closed = closed_store.read(person.store)
    parts = split(closed, Window(T0, FIRST), costs_always=False)
    with databases.opened(threads=1) as database:
        yield (
            database,
            summed_report(database, person.store, closed, parts, now=NOW, cluster="demo"),
        )


def without_notes(text):
    return [line for line in text.splitlines() if not line.startswith(("note: ", "closed: "))]


def on_terminal(report, *keys):
    text = io.StringIO()
    Console(file=text, width=120).print(terminal.render(report, keys))
    return text.getvalue()


def printed(person):
    """Return the lines and the net cost of the month's report."""
    with november(person) as report:
        return lines(report), report.net


def test_a_report_of_a_month_reads_its_sums(person):
    person.close(NOW)
    exact = person.anew(T0, FIRST, NOW)
    assert printed(person) == (lines(exact), exact.net)
    for path in person.store.folder.glob("closed/*/*"):
        path.unlink()
    with november(person) as report:
        assert report.net == exact.net, "the charges of days are not read"


def test_a_month_has_sums_when_its_last_day_is_closed(person):
    person.close(NOW, through=SINCE)
    assert kept(person) == []
    person.close(NOW, through=FIRST - DAY)
    assert [path.parent.name for path in kept(person)] == ["2026-11"]


def test_a_corrected_month_has_other_sums(person):
    person.close(NOW)
    (before,) = kept(person)
    begun = FIRST - 18 * HOUR
    row = Row(begun // HOUR, begun // HOUR, begun + 60, begun + 1740, state="NODE_FAIL")
    page(person.cluster, [row], NOW + HOUR)
    person.read(NOW + HOUR)
    (result,) = person.close(NOW + HOUR)
    assert result.correction
    (after,) = kept(person)
    assert after != before
    assert printed(person)[0] == lines(person.anew(T0, FIRST, NOW + HOUR))


def test_sums_of_other_days_are_not_read(person):
    """A copy of closed.json came back, and its numbers begin anew."""
    person.close(NOW)
    closed = closed_store.read(person.store)
    own = [closed.days[day] for day in (SINCE, SINCE + DAY)]
    names = {month_sums.folder_of(person.store.folder, days, FIRST) for days in (own, own[1:])}
    later = [replace(own[0], closed_at=NOW + 1), own[1]]
    assert kept(person)[0] in names
    assert month_sums.folder_of(person.store.folder, later, FIRST) not in names
    assert len(names) == 2


def test_sums_that_are_missing_are_written_again_and_change_no_answer(person):
    person.close(NOW)
    (before,) = kept(person)
    made = printed(person)
    shutil.rmtree(before)
    assert printed(person) == made
    assert person.close(NOW) == []
    assert kept(person) == [before]
    assert printed(person) == made


def test_a_printed_month_is_read_from_its_answers_alone(person):
    person.close(NOW)
    exact = without_notes(on_terminal(person.anew(T0, FIRST, NOW), Key.ACCOUNT, Key.USER))
    with database_and_november(person) as (database, report):
        printed_lines = without_notes(on_terminal(report, Key.ACCOUNT, Key.USER))
        assert not database.is_used
        assert on_terminal(report, Key.JOB)
        assert database.is_used
    assert printed_lines == exact


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "another"])
def test_sums_without_good_answers_are_asked(person, damage):
    """An earlier toolkit kept sums alone."""
    person.close(NOW)
    with november(person) as report:
        whole = on_terminal(report, Key.ACCOUNT, Key.USER)
    (path,) = person.store.folder.glob(f"{month_sums.FOLDER}/*/*/answers.json")
    text = path.read_text()
    made = {"missing": None, "empty": "", "torn": text[: len(text) // 2], "another": "[1]"}[damage]
    path.unlink()
    if made is not None:
        path.write_text(made)
    with database_and_november(person) as (database, report):
        assert on_terminal(report, Key.ACCOUNT, Key.USER) == whole
        assert database.is_used
