"""`toolkit usage close` and `toolkit report` against the local cloud.

The pages are of the head's own program, with the head's role. slurmdbd is a fake.
"""

from __future__ import annotations

import csv
import json
import time
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_people_rights import Person
from tests.contract.deploy.test_records import RecordsHead, clock_of_yesterday, toolkit
from tests.fakes.slurmdbd import Row
from toolkit import cli
from toolkit.deploy import session
from toolkit.deploy.storage import Bucket
from toolkit.errors import EndpointUnreachable

pytestmark = LEAVES_A_CLOUD
HOUR, DAY = 3600, 86_400
CLOCK = clock_of_yesterday()
TODAY = int(CLOCK.now()) // DAY * DAY
FIRST = TODAY - 3 * DAY


@pytest.fixture
def head(shared_cluster, tmp_path, monkeypatch):
    """A head with records of two instances, one of them over midnight.

    Of an earlier test's records none is left.
    """
    monkeypatch.setenv("TOOLKIT_USAGE_STORE", str(tmp_path / "usage"))
    monkeypatch.setenv("TOOLKIT_BILLS", str(tmp_path / "bills"))
    folder = tmp_path / "head"
    folder.mkdir()
    head = RecordsHead(shared_cluster, folder, CLOCK)
    Bucket(head.stack.config_client("s3"), head.bucket).empty()
    lives = {
        "i-1": (FIRST + 10 * HOUR, FIRST + 13 * HOUR),
        "i-2": (FIRST + 20 * HOUR, FIRST + 29 * HOUR),
    }
    for name, (launched, ended) in lives.items():
        head.add_life(name, launched, ended)
    head.accounting.rows = {
        number: Row(number, 100 + number, launched + 100, ended - 700, state="COMPLETED")
        for number, (launched, ended) in enumerate(lives.values(), start=1)
    }
    head.write()
    return head


def printed(config, capsys, *words):
    """Return what a command prints as JSON."""
    capsys.readouterr()
    command = [*words, "--config", str(config.path), "--json"]
    assert cli.run(command) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def report(config, capsys, since, until, *more):
    ends = (f"{time.strftime('%Y-%m-%dT%H:%M', time.gmtime(second))}" for second in (since, until))
    words = [word for pair in zip(("--since", "--until"), ends, strict=True) for word in pair]
    return printed(config, capsys, "report", "--by", "job", *words, *more)


def facts(made):
    """Return what a report must have, closed or computed."""
    return {name: made[name] for name in made.keys() - {"closed", "made_at", "notes", "attempts"}}


@contextmanager
def no_aws(config):
    raise AssertionError("a report of closed days asked AWS")
    yield


def test_closed_days_are_reported_without_aws_as_they_were_computed(head, capsys, monkeypatch):
    config = head.config
    computed = report(config, capsys, FIRST, FIRST + 2 * DAY)
    assert computed["closed"] is None
    planned = printed(config, capsys, "usage", "close", "--dry-run")
    assert planned["days"] == []
    closed = printed(config, capsys, "usage", "close")
    days = [time.strftime("%Y-%m-%d", time.gmtime(FIRST + day * DAY)) for day in range(3)]
    assert [item["day"] for item in closed["days"]] == days
    assert closed["records"]["s3_gets"] == closed["records"]["new_pages"] > 0
    with monkeypatch.context() as patched:
        patched.setattr(session, "connected", no_aws)
        whole = report(config, capsys, FIRST, FIRST + 2 * DAY)
        status = printed_status(capsys)
    assert whole["closed"] == {"days": days[:2], "is_whole": True, "corrections": []}
    assert facts(whole) == facts(computed)
    assert whole["attempts"] == computed["attempts"]
    (cluster,) = status["clusters"]
    assert (cluster["closed_days"], cluster["status"]) == (3, {"estimated": 3})
    again = printed(config, capsys, "usage", "close")
    assert (again["days"], again["records"]["new_pages"]) == ([], 0)


def test_a_reader_closes_days_and_is_denied_nothing(head, capsys):
    reader = Person(head.config, "reader")
    capsys.readouterr()
    assert reader.toolkit("usage", "close", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["days"]) == 3
    assert reader.denied() == set()


@contextmanager
def unreachable(config):
    raise EndpointUnreachable("no network")
    yield


def test_files_for_finance_are_made_of_closed_days_without_aws(head, capsys, monkeypatch, tmp_path):
    config = head.config
    printed(config, capsys, "usage", "close")
    page, focus = tmp_path / "report.html", tmp_path / "focus.csv"
    monkeypatch.setattr(session, "connected", unreachable)
    files = ("--html", str(page), "--focus", str(focus))
    made = report(config, capsys, FIRST, FIRST + DAY, *files)
    rows = list(csv.DictReader(focus.read_text().splitlines()))
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(made["total"]) > 0
    assert {row["ChargePeriodStart"] for row in rows} == {made["since"]}
    assert f"${made['total']}" in page.read_text()
    assert "there are no trends" in page.read_text()  # nobody knows the day before
    day = [f"{time.strftime('%Y-%m-%d', time.gmtime(at))}" for at in (FIRST, FIRST + DAY)]
    saved = printed(config, capsys, "savings", "--since", day[0], "--until", day[1])
    assert {line["measure"] for line in saved["savings"]} == {"power-down of idle nodes"}


def printed_status(capsys):
    capsys.readouterr()
    assert cli.run(["usage", "status", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_report_joins_closed_days_with_what_is_open(head, capsys):
    config = head.config
    assert cli.run(["usage", "close", "--config", str(config.path)]) == 0
    said = capsys.readouterr().out
    assert "closed " in said
    assert "(S3: 4 LIST, " in said
    for since, until in ((FIRST + 11 * HOUR, FIRST + 2 * DAY), (FIRST, FIRST + 2 * DAY + HOUR)):
        joined = report(config, capsys, since, until)
        assert not joined["closed"]["is_whole"]
        assert facts(joined) == facts(report(config, capsys, since, until, "--anew"))


def test_a_late_end_is_a_correction_that_the_report_shows(head, capsys):
    config = head.config
    printed(config, capsys, "usage", "close")
    head.accounting.rows[2] = replace(head.accounting.rows[2], state="NODE_FAIL")
    (head.folder / "records.json").unlink()  # the head begins anew, and writes all pages again
    CLOCK.advance(1)
    head.write()
    corrected = printed(config, capsys, "usage", "close", "--all-pages")
    assert {item["day"] for item in corrected["days"] if item["correction"]}
    made = report(config, capsys, FIRST, FIRST + 2 * DAY)
    assert facts(made) == facts(report(config, capsys, FIRST, FIRST + 2 * DAY, "--anew"))
    assert made["components"]["lost work"]
    assert [item["difference"] for item in made["closed"]["corrections"]]
    capsys.readouterr()
    since, until = (time.strftime("%Y-%m-%d", time.gmtime(FIRST + day * DAY)) for day in (0, 2))
    assert toolkit(config, "report", "--since", since, "--until", until) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the whole report" in said
    assert "correction of closed day" in said


def test_a_day_that_is_not_over_is_refused(head, capsys):
    config = head.config
    today = time.strftime("%Y-%m-%d", time.gmtime(TODAY))
    assert cli.run(["usage", "close", "--config", str(config.path), "--through", today]) == 2
    assert "the records do not reach behind" in capsys.readouterr().err
