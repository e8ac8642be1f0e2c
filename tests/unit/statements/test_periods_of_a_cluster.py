"""Months from open to final: fixed figures, visible corrections, a log of persons."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace
from decimal import Decimal

import pytest
from rich.console import Console

from tests.unit.accounting.test_records import DAY
from tests.unit.statements.months import DECEMBER, LATER, NOVEMBER, SETTINGS, Months, lived
from tests.unit.usage.record_store import copy_buckets
from toolkit.accounting import export, periods, terminal
from toolkit.accounting.attempt_names import HIDDEN_USER, Names, with_names
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.report import Key
from toolkit.bill.history import History, RecordedDay
from toolkit.bill.record import DayStatus
from toolkit.commands import report_files
from toolkit.config.targets import Targets
from toolkit.finance.facts import FinanceFacts
from toolkit.finance.list_prices import ListPrices
from toolkit.prices import PriceBook
from toolkit.statements import changes, copies, issue, log, render, uses
from toolkit.statements.errors import (
    AccountUnknown,
    DoubtUnknown,
    PeriodCopyDamaged,
    PeriodLogDamaged,
    PeriodNotReady,
    PeriodStateWrong,
)
from toolkit.statements.log import Change
from toolkit.statements.settings import AccountFacts, GrantFacts, StatementSettings
from toolkit.statements.statement_json import statement_json
from toolkit.usage.summed_report import SummedReport

KEYS = [Key.ACCOUNT, Key.USER, Key.PROJECT]


@pytest.fixture(scope="module")
def two_months(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("months") / "store")


@pytest.fixture
def months(two_months, tmp_path):
    """A copy of the two months, for a test to change."""
    folder = tmp_path / "store"
    shutil.copytree(two_months.person.store.folder, folder)
    own = Months(folder)
    source = two_months.cluster
    copy_buckets(source, own.cluster)
    own.cluster.accounting.rows |= source.accounting.rows
    own.cluster.place, own.cluster.instances = source.place, source.instances
    return own


def close(months, period, now=LATER, **more):
    changes.review(months.periods(now, **more), period)
    changes.approve(months.periods(now, **more), period, (), "looked at", everything=True)
    return changes.close(months.periods(now, **more), period)


def texts_of(report):
    console = Console(width=120, file=io.StringIO())
    console.print(terminal.render(report, KEYS))
    json_text = json.dumps(export.as_json(report, KEYS))
    return [console.file.getvalue(), json_text, export.as_csv(report)]


def printed(cluster, period):
    """Return all that is printed of a month."""
    report = cluster.report(period)
    texts = texts_of(report)
    with cluster.printed(period) as summed:
        assert isinstance(summed, SummedReport)
        assert texts_of(summed) == texts
    return texts, issue.files(cluster, period), issue.files(cluster, period, Names.ALL)


def test_a_month_costs_what_its_days_do(months):
    report = months.periods().report(NOVEMBER)
    exact = months.person.anew(NOVEMBER.window.since, NOVEMBER.window.until, LATER)
    assert report.net == exact.net
    assert report.components() == exact.components()
    assert report.period.state == "open"
    rows = {row.key_values: row.total for row in report.groups([Key.PROJECT]) if row.has_jobs}
    assert set(rows) == {("imagenet",), ("(no project)",)}


def test_a_month_whose_days_change_while_it_is_closed_stays_open(months):
    changes.review(months.periods(), NOVEMBER)
    changes.approve(months.periods(), NOVEMBER, (), "looked at", everything=True)

    def facts(_report):
        months.lose_work(1)
        months.read_late(LATER + DAY)
        return {}

    with pytest.raises(PeriodNotReady, match="closed days were changed while 2026-11 was read"):
        changes.close(months.periods(), NOVEMBER, finance=facts)
    assert not months.periods().record(NOVEMBER).is_closed


def test_a_closed_month_prints_the_same_bytes_whatever_becomes_known(months):
    close(months, NOVEMBER)
    before = printed(months.periods(), NOVEMBER)
    months.lose_work(1)
    assert [item for item in months.read_late(LATER + DAY) if item.correction]
    vision = AccountFacts("vision", discount_percent=Decimal(50), owner="new@example.org")
    later = {
        "now": LATER + 2 * DAY,
        "settings": replace(SETTINGS, issuer="another", accounts={"vision": vision}),
        "policy": CostPolicy(boot=Payer.SHARED),
    }
    assert printed(months.periods(**later), NOVEMBER) == before
    assert months.periods(**later).live_report(NOVEMBER).components()[
        "lost work"
    ] > months.periods().report(NOVEMBER).components().get("lost work", 0)
    changes.finalize(months.periods(), NOVEMBER, without_bill="no bill in a test")
    assert printed(months.periods(**later), NOVEMBER) == before


def prices_by_account(report):
    """Return the sources and the oldest price of each account."""
    found = {}
    for charge in export.as_json(report, KEYS)["charges"]:
        if charge["account"]:
            sources, days = found.setdefault(charge["account"], (set(), set()))
            sources |= set((charge["price_source"] or "").split())
            days.add(charge["price_as_of"])
    return {name: (sources, min(days)) for name, (sources, days) in found.items()}


def test_a_statement_says_the_sources_and_the_age_of_its_prices(months):
    close(months, NOVEMBER)
    cluster = months.periods()
    made = {item.account.name: item for item in issue.statements(cluster, NOVEMBER).statements}
    expected = prices_by_account(cluster.report(NOVEMBER))
    assert set(expected) == {"vision", "language"}
    for name, (sources, oldest) in expected.items():
        item = made.pop(name)
        data = statement_json(item)
        assert (set(data["price_sources"]), data["price_as_of"]) == (sources, oldest)
        words = f"{data['price_sources'][0]}, the oldest of {oldest[:10]}"
        assert words in render.text(item)
        assert words in render.html(item)
    (above,) = made.values()  # without a cost of its own
    assert "Prices of the actual cost" not in render.text(above) + render.html(above)
    assert statement_json(above)["price_sources"] == []


def test_a_month_that_was_closed_without_prices_in_statements_prints_none(months, monkeypatch):
    monkeypatch.setattr(copies, "_facts_json", without_prices(copies._facts_json))
    close(months, NOVEMBER)
    for item in issue.statements(months.periods(), NOVEMBER).statements:
        assert "Prices of the actual cost" not in render.text(item) + render.html(item)
        assert not {"price_sources", "price_as_of"} & set(statement_json(item))


def without_prices(facts_json):
    """Return what an earlier toolkit kept of a closed month."""

    def facts(content):
        return {name: value for name, value in facts_json(content).items() if name != "has_prices"}

    return facts


def test_what_is_late_is_a_correction_of_the_next_open_month(months):
    close(months, NOVEMBER)
    assert months.periods().report(DECEMBER).period.corrections == ()
    months.lose_work(1)
    months.read_late(LATER + DAY)
    shown = months.periods(LATER + DAY).report(DECEMBER)
    corrected = {(item.period, item.account, item.component) for item in shown.period.corrections}
    assert {("2026-11", "vision", "lost work"), ("2026-11", "vision", "useful work")} <= corrected
    assert sum(item.micro for item in shown.period.corrections) == 0
    closing = close(months, DECEMBER, LATER + DAY)
    assert closing.period.corrections == shown.period.corrections
    assert months.periods().report(DECEMBER).period.corrections == shown.period.corrections
    january = periods.parse("2027-01", DECEMBER.last.replace(year=2027))
    assert months.periods().pending(january) == {}
    text = issue.files(months.periods(), DECEMBER)["vision.eml"].decode()
    assert "Correction" not in text  # lost and useful work have the same price


def test_a_correction_with_money_reaches_the_statement(months):
    close(months, NOVEMBER)
    months.split_job(3, 9)
    months.read_late(LATER + DAY)
    cluster = months.periods(LATER + DAY)
    made = issue.statements(cluster, DECEMBER)
    lines = {
        item.account.name: [line for line in item.due_lines if "2026-11" in line.text]
        for item in made.statements
    }
    (language,), (vision,) = lines["language"], lines["vision"]
    assert language.cents == -vision.cents > 0
    assert (
        sum(item.due for item in made.statements) + made.cluster
        == sum(item.cents for statement in made.statements for item in statement.cost_lines)
        + made.cluster
    )


def test_files_of_charges_say_which_corrections_are_not_in_them(months, tmp_path, capsys):
    close(months, NOVEMBER)
    months.split_job(3, 9)
    months.read_late(LATER + DAY)
    cluster = months.periods(LATER + DAY)
    prices = FinanceFacts(Targets(), ListPrices(PriceBook.bundled("us-east-1")), None)
    for name in ("focus", "parquet"):
        path = tmp_path / f"{name}.parquet"
        files = replace(report_files.ReportFiles(None, None, None), **{name: path})
        for period, corrected in ((NOVEMBER, False), (DECEMBER, True)):
            making = report_files.Making(lambda: prices, dict)
            report_files.write(files, cluster.report(period), [Key.ACCOUNT], making)
            said = capsys.readouterr().err
            assert ("not in it: corrections of 2026-11, 0.000000 USD" in said) is corrected


def test_periods_and_their_corrections_add_up_to_what_is_known(months):
    """Hold it through corrections and a month opened again."""
    close(months, NOVEMBER)
    months.lose_work(1)
    months.read_late(LATER + DAY)
    assert_adds_up(months, LATER + DAY)
    close(months, DECEMBER, LATER + DAY)
    assert_adds_up(months, LATER + DAY)
    changes.reopen(months.periods(LATER + DAY), NOVEMBER, "a wrong account")
    months.split_job(3, 9)
    months.read_late(LATER + 2 * DAY)
    close(months, NOVEMBER, LATER + 2 * DAY)
    assert months.periods().record(NOVEMBER).revision == 2
    assert_adds_up(months, LATER + 2 * DAY)
    months.lose_work(2)
    months.read_late(LATER + 3 * DAY)
    assert_adds_up(months, LATER + 3 * DAY)


def test_a_correction_is_booked_again_when_its_month_is_opened_behind_a_closed_one(months):
    january = periods.parse("2027-01", DECEMBER.last.replace(year=2028))
    later = january.window.until + DAY
    close(months, NOVEMBER)
    months.split_job(3, 9)
    months.read_late(LATER + DAY)
    booked = close(months, DECEMBER, LATER + DAY).period.corrections
    assert booked
    close(months, january, later)
    changes.reopen(months.periods(later), DECEMBER, "a wrong account")
    assert close(months, DECEMBER, later).period.corrections == booked
    assert_adds_up(months, later)


def assert_adds_up(months, now):
    """Assert that booked and pending amounts are the known ones."""
    cluster = months.periods(now)
    parts, known = [], []
    for period in (NOVEMBER, DECEMBER):
        report = cluster.report(period)
        parts += [*uses.uses_of(report), *map(uses.use_of, report.period.corrections)]
        known += uses.uses_of(cluster.live_report(period))
    january = periods.parse("2027-01", DECEMBER.last.replace(year=2027))
    parts += [uses.use_of(item) for own in cluster.pending(january).values() for item in own]
    assert uses.corrections("all", known, parts) == ()


def test_an_open_month_is_reviewed_when_it_is_over_and_closed_in_order(months):
    with pytest.raises(PeriodNotReady, match="is not over"):
        changes.review(months.periods(NOVEMBER.window.until - 1), NOVEMBER)
    with pytest.raises(PeriodStateWrong, match="2026-11 is open"):
        changes.close(months.periods(), NOVEMBER)
    changes.review(months.periods(), DECEMBER)
    with pytest.raises(PeriodNotReady, match="2026-11 is before 2026-12"):
        changes.close(months.periods(), DECEMBER)
    (review,) = log.read(months.periods().log_file)
    assert (review.change, review.period, review.who) == ("review", "2026-12", "eve@desk")


def test_a_month_without_a_closed_day_is_not_ready(months):
    january = periods.parse("2027-02", DECEMBER.last.replace(year=2028))
    with pytest.raises(PeriodNotReady, match="no day of 2027-02 is closed"):
        changes.review(months.periods(january.window.until), january)


def test_days_that_nobody_closed_are_doubtful_and_a_correction_if_they_come(months):
    """Close a destroyed cluster's month, then find more records."""
    january = periods.parse("2027-01", DECEMBER.last.replace(year=2028))
    later = january.window.until + DAY
    for period in (NOVEMBER, DECEMBER):
        close(months, period)
    (row,) = changes.review(months.periods(later), january)
    assert (row.kind, "no day after 2027-01-0" in row.text) == ("missing days", True)
    changes.approve(months.periods(later), january, (row.id,), "the cluster was destroyed")
    changes.close(months.periods(later), january)
    assert months.periods(later).report(january).net == 0
    months.run_job(7, LATER + 9 * DAY)
    months.close_days(later)
    february = periods.parse("2027-02", january.last.replace(year=2028))
    ((period, found),) = months.periods(later).pending(february).items()
    assert (period, {item.account for item in found}) == ("2027-01", {"vision", ""})
    assert sum(item.micro for item in found) == 2 * 1_006_000 - 10 * 1_006_000 // 3600


def test_new_records_are_weighed_before_a_month_is_closed(months):
    changes.review(months.periods(), NOVEMBER)
    months.lose_work(1)
    months.read_page(LATER + DAY)
    with pytest.raises(PeriodNotReady, match="say something new"):
        changes.close(months.periods(), NOVEMBER)


def test_each_doubtful_row_is_approved_by_a_person_with_a_reason(months):
    grant = GrantFacts("ERC-1", "2026-01-01", "2026-11-29")
    accounts = {"vision": AccountFacts("vision", grant=grant)}
    settings = StatementSettings("demo", accounts=accounts)
    rows = changes.review(months.periods(settings=settings), NOVEMBER)
    assert {(row.kind, row.subject) for row in rows} == {
        ("grant", "vision"),
        ("unknown account", "language"),
    }
    (ended,) = (row for row in rows if row.kind == "grant")
    assert "outside of its grant ERC-1, 2026-01-01 to 2026-11-29" in ended.text
    with pytest.raises(PeriodNotReady, match="2 doubtful rows"):
        changes.close(months.periods(settings=settings), NOVEMBER)
    with pytest.raises(DoubtUnknown, match="no doubtful row nonsense"):
        changes.approve(months.periods(settings=settings), NOVEMBER, ("nonsense",), "why not")
    changes.approve(months.periods(settings=settings), NOVEMBER, (ended.id,), "the dean agreed")
    with pytest.raises(PeriodNotReady, match="1 doubtful row "):
        changes.close(months.periods(settings=settings), NOVEMBER)
    rest = changes.approve(
        months.periods(settings=settings), NOVEMBER, (), "known", everything=True
    )
    assert [row.subject for row in rest] == ["language"]
    changes.close(months.periods(settings=settings), NOVEMBER)
    approvals = [item for item in log.read(months.periods().log_file) if item.change == "approve"]
    assert [item.reason for item in approvals] == ["the dean agreed", "known"]
    assert approvals[0].doubts == ((ended.id, ended.sentence),)


def test_a_dry_run_changes_nothing(months):
    before = {path for path in months.person.store.folder.rglob("*") if path.is_file()}
    changes.review(months.periods(), NOVEMBER, dry_run=True)
    assert not months.periods().log_file.exists()
    changes.review(months.periods(), NOVEMBER)
    report = changes.close(months.periods(), NOVEMBER, dry_run=True)
    assert report.net > 0
    after = {path for path in months.person.store.folder.rglob("*") if path.is_file()}
    assert {path.name for path in after - before} <= {log.FILE, "lock"}
    assert months.periods().record(NOVEMBER).state == "review"


def test_a_final_month_never_changes(months):
    close(months, NOVEMBER)
    with pytest.raises(PeriodNotReady, match="2 days of 2026-11 are not final"):
        changes.finalize(months.periods(), NOVEMBER)
    days = (NOVEMBER.last, NOVEMBER.last.replace(day=29))
    billed = {day: RecordedDay(DayStatus.FINAL, {}) for day in days}
    changes.finalize(months.periods(bills=History(billed, (), {})), NOVEMBER)
    for change in (
        lambda: changes.reopen(months.periods(), NOVEMBER, "please"),
        lambda: changes.review(months.periods(), NOVEMBER),
        lambda: changes.finalize(months.periods(), NOVEMBER),
    ):
        with pytest.raises(PeriodStateWrong, match="2026-11 is final"):
            change()


def test_a_copy_that_was_changed_is_refused(months):
    close(months, NOVEMBER)
    record = months.periods().record(NOVEMBER)
    folder = copies.folder_of(months.person.store, "2026-11", record.revision)
    page = folder / "documents" / "vision.html"
    page.write_bytes(page.read_bytes().replace(b"USD", b"EUR"))
    with pytest.raises(PeriodCopyDamaged, match="differs from what was closed"):
        months.periods().report(NOVEMBER)


def test_a_closing_that_was_killed_is_repeated(months, monkeypatch):
    changes.review(months.periods(), NOVEMBER)

    def killed(path, entry):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            changes.close(months.periods(), NOVEMBER)
    assert months.periods().record(NOVEMBER).state == "review"
    changes.close(months.periods(LATER + 1), NOVEMBER)
    assert months.periods().report(NOVEMBER).made_at == LATER + 1


def test_a_copy_is_on_disk_before_the_log_names_it(months, monkeypatch):
    """Look at which inodes were synced when the log is written."""
    synced, named, append = set(), [], log.append

    def checked_append(path, entry):
        folder = copies.folder_of(months.person.store, "2026-11", 1)
        if entry.change is Change.CLOSE:
            own = (*folder.rglob("*"), folder, folder.parent, folder.parent.parent)
            assert len(own) > 10
            assert {path.stat().st_ino for path in own} <= synced
            named.append(folder)
        append(path, entry)

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.add(os.fstat(file).st_ino), sync(file)))
    monkeypatch.setattr(log, "append", checked_append)
    close(months, NOVEMBER)
    assert len(named) == 1


def test_a_month_that_two_people_close_keeps_the_copy_of_the_first(months):
    changes.review(months.periods(), NOVEMBER)
    changes.approve(months.periods(), NOVEMBER, (), "looked at", everything=True)

    def meanwhile(_report):
        changes.close(months.periods(LATER + 1), NOVEMBER)
        return {}

    with pytest.raises(PeriodStateWrong, match="2026-11 is closed"):
        changes.close(months.periods(), NOVEMBER, finance=meanwhile)
    assert months.periods().report(NOVEMBER).made_at == LATER + 1


def test_a_month_is_not_closed_upon_one_that_is_opened_meanwhile(months):
    close(months, NOVEMBER)
    changes.review(months.periods(), DECEMBER)
    changes.approve(months.periods(), DECEMBER, (), "looked at", everything=True)

    def meanwhile(_report):
        changes.reopen(months.periods(), NOVEMBER, "a wrong account")
        return {}

    with pytest.raises(PeriodNotReady, match="somebody changed a month while 2026-12 was read"):
        changes.close(months.periods(), DECEMBER, finance=meanwhile)
    assert not months.periods().record(DECEMBER).is_closed


def test_a_log_that_was_changed_is_refused(months):
    close(months, NOVEMBER)
    path = months.periods().log_file
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(PeriodLogDamaged, match="line 1 does not follow"):
        months.periods().report(NOVEMBER)
    path.write_bytes(b"".join([lines[0].replace(b"eve", b"eva"), *lines[1:]]))
    with pytest.raises(PeriodLogDamaged, match="line 2 does not follow"):
        months.periods().report(NOVEMBER)
    path.write_bytes(b"".join(lines)[:-3])  # a writer that was killed
    assert months.periods().record(NOVEMBER).state == "review"


def test_statements_of_unknown_accounts_are_refused(months):
    made = issue.statements(months.periods(), NOVEMBER)
    with pytest.raises(AccountUnknown, match="did you mean 'vision'"):
        issue.files_of_accounts({}, made, ("visoin",))


def test_names_are_left_out_of_statements_on_request(months):
    cluster = months.periods()
    files = {names: issue.files(cluster, NOVEMBER, names) for names in Names}
    assert b"ada" in files[Names.OWN]["vision.html"]
    assert not [name for name, body in files[Names.NONE].items() if b"ada" in body]
    assert b"vision/ada" in files[Names.ALL]["science.html"]
    assert b"ada" not in files[Names.OWN]["science.html"]


def test_names_are_left_out_of_corrections_on_request(months):
    close(months, NOVEMBER)
    months.split_job(3, 9)
    months.read_late(LATER + DAY)
    report = months.periods(LATER + DAY).report(DECEMBER)
    named = {"none": set(), "own": {"grace"}, "all": {"alan", "grace"}}
    for names, users in named.items():
        text = json.dumps(export.as_json(with_names(report, Names(names), "grace"), KEYS))
        assert {user for user in ("alan", "grace") if user in text} == users
        found = {item["user"] for item in json.loads(text)["period"]["corrections"]}
        assert found == users | ({HIDDEN_USER} if names != "all" else set())
