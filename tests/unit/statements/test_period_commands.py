"""`toolkit report --period`, `period` and `statement` on a store of closed days, without AWS."""

from __future__ import annotations

import csv
import io
import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from slurmplugins.budgets import closed_days
from slurmplugins.budgets.memory import Memory
from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from tests.fakes.budgets import snapshot
from tests.unit.statements.months import LATER, lived
from toolkit import cli
from toolkit.accounting import periods
from toolkit.accounting.days import day_of
from toolkit.accounting.report import Key
from toolkit.bill.history import NO_BILLS
from toolkit.commands import (
    period_options,
    report as report_command,
    report_closed,
    report_period,
    savings as savings_command,
)
from toolkit.config import load
from toolkit.deploy import head as head_module, session
from toolkit.errors import EndpointUnreachable
from toolkit.render.budgets import budgets_config
from toolkit.usage.cluster_store import VERSION

EXAMPLE = (Path(__file__).parents[3] / "examples" / "local.yaml").read_text()
ACCOUNTS = """\
  - {name: science, fairshare: 1, owner: dean@example.org}
  - {name: vision, parent: science, owner: pi@example.org, cost_centre: '4711', project: pixels}
  - {name: language, parent: science, discount_percent: 50}
"""


@pytest.fixture(scope="module")
def two_months(tmp_path_factory):
    return lived(tmp_path_factory.mktemp("months") / "store").person.store.folder


@contextmanager
def no_aws(config):
    raise AssertionError("AWS was asked")
    yield


@contextmanager
def unreachable_aws(config):
    """Refuse as a computer without a network does."""
    raise EndpointUnreachable("no answer")
    yield


@pytest.fixture
def config(two_months, tmp_path, monkeypatch):
    """A cluster.yaml with two months of closed days, in January."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime.fromtimestamp(LATER, tz or UTC)

    store = tmp_path / "usage"
    shutil.copytree(two_months, store / "clusters" / "demo")
    monkeypatch.setenv("TOOLKIT_USAGE_STORE", str(store))
    monkeypatch.setenv("TOOLKIT_BILLS", str(tmp_path / "bills"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for module in (report_command, period_options, savings_command):
        monkeypatch.setattr(module, "datetime", Clock)
    monkeypatch.setattr(period_options.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(session, "connected", no_aws)
    path = tmp_path / "cluster.yaml"
    old = "  - {name: vision, fairshare: 60}\n  - {name: language, fairshare: 40}\n"
    assert old in EXAMPLE
    path.write_text(EXAMPLE.replace(old, ACCOUNTS))
    return path


@pytest.fixture
def toolkit(config, capsys):
    """The function that runs a command.

    It returns what was printed, or the error. `err` is what it said on standard error.
    """

    def run(*words, code=0):
        capsys.readouterr()
        assert cli.run([*words, "--config", str(config)]) == code, capsys.readouterr().err
        said = capsys.readouterr()
        run.err = said.err
        return said.err if code else said.out

    return run


@pytest.fixture
def aws(config, monkeypatch):
    """The cloud and the head that a report asks."""

    class Account:
        account = "111122223333"

    @contextmanager
    def connected(_config):
        yield Account()

    def live(_path, read, _clients, _head, *, window, now, trail=None):
        cluster = period_options.periods_of(read, datetime.fromtimestamp(now, UTC), NO_BILLS)
        return cluster.live_report(periods.month_of(day_of(window.since)))

    monkeypatch.setattr(session, "connected", connected)
    monkeypatch.setattr(head_module, "Head", lambda clients, config: object())
    monkeypatch.setattr(report_closed, "collect_report", live)
    monkeypatch.setattr(report_closed, "sources_of", lambda *_: None)
    monkeypatch.setattr(report_command, "_record", lambda *_: None)
    return Account


def close(toolkit, month):
    toolkit("period", "review", month)
    toolkit("period", "close", month)


@pytest.mark.parametrize("keys", [*Key, "type,account", "project,user,partition"])
def test_a_report_by_any_key_has_the_whole_cost(toolkit, keys):
    made = json.loads(toolkit("report", "--period", "2026-11", "--by", keys, "--json"))
    assert made["by"] == keys.split(",")
    assert sum(amount(row["total"]) for row in made["groups"]) == amount(made["total"]) > 0


def amount(text):
    return int(text.replace(".", ""))


def test_projects_come_from_wckey_or_else_from_the_account(toolkit):
    made = json.loads(toolkit("report", "--period", "2026-11", "--by", "project", "--json"))
    assert {row["project"] for row in made["groups"]} == {
        "imagenet",
        "pixels",
        "(no project)",
        None,
    }


def test_an_accounts_project_is_that_of_the_wckey_in_small_letters(toolkit, config):
    config.write_text(config.read_text().replace("project: pixels", "project: ImageNet"))
    made = json.loads(toolkit("report", "--period", "2026-11", "--by", "project", "--json"))
    assert {row["project"] for row in made["groups"]} == {"imagenet", "(no project)", None}
    text = toolkit("statement", "--period", "2026-11", "--account", "vision")
    assert "ImageNet" not in text


def test_pools_and_types_also_have_what_no_job_caused(toolkit):
    (row,) = json.loads(toolkit("report", "--period", "2026-11", "--by", "pool", "--json"))[
        "groups"
    ]
    assert (row["pool"], row["attempts"]) == ("gpu", 3)
    rows = json.loads(toolkit("report", "--period", "2026-11", "--by", "type", "--json"))["groups"]
    assert [row["type"] for row in rows] == ["g5.xlarge"]


def test_a_closed_months_page_asks_nobody_for_the_month_before(toolkit, tmp_path):
    """Make the page without trends: no day of October is closed."""
    close(toolkit, "2026-11")
    toolkit("report", "--period", "2026-11", "--html", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").exists()


def test_a_months_trends_are_of_the_month_before_as_it_was_closed(toolkit, tmp_path, monkeypatch):
    seen = []
    real = report_period.made

    @contextmanager
    def made(config_path, config, wanted, now):
        with real(config_path, config, wanted, now) as (report, head):
            seen.append((report.period.name, report.period.state))
            yield report, head

    monkeypatch.setattr(report_period, "made", made)
    close(toolkit, "2026-11")
    toolkit("report", "--period", "2026-12", "--html", str(tmp_path / "page.html"))
    assert seen == [("2026-12", "open"), ("2026-11", "closed")]


def test_a_focus_file_has_the_facts_of_accounts_as_they_were_closed(toolkit, config, tmp_path):
    def tags(*options):
        path = tmp_path / "focus.csv"
        toolkit("report", "--period", "2026-11", "--focus", str(path), *options)
        rows = csv.DictReader(path.read_text().splitlines())
        return next(json.loads(row["Tags"]) for row in rows if row["SubAccountId"] == "vision")

    close(toolkit, "2026-11")
    config.write_text(config.read_text().replace("'4711'", "'4712'"))
    found = tags()
    assert (found["cost_centre"], found["parent_account"]) == ("4711", "science")
    assert (found["owner"], found["project"]) == ("pi@example.org", "imagenet")
    assert "owner" not in tags("--names", "none")
    toolkit("period", "reopen", "2026-11", "--reason", "a new cost centre")
    assert tags()["cost_centre"] == "4712"


class BudgetHead:
    """A head that keeps budgets as slurm-budget does."""

    def __init__(self, config) -> None:
        self.config = config
        self.memory = Memory(days={"vision": {"2026-11-29": Decimal(999)}})

    def run(self, argv, *, timeout=60):
        del timeout
        if "close-days" in argv:
            closed = closed_days.parse(argv[-1])
            self.memory = closed_days.with_closed_days(self.memory, self.config, closed)
        given = snapshot(now=float(LATER), memory=self.memory, config=self.config, limits={})
        return json.dumps(printable(plan(given), given))


@contextmanager
def connected(config):
    yield None


def test_a_budget_has_spent_what_the_statements_charge(toolkit, config, monkeypatch, tmp_path):
    """Give the head the closed days, one month closed."""
    text = "budgets:\n  year: {account: [science, vision, language], usd: 5000, period: grant,"
    text += " since: 2026-01-01, until: 2027-07-01}\n  pixels: {project: pixels, usd: 9}\n"
    config.write_text(
        config.read_text()
        + text.replace("usd: 9}", "usd: 9, period: grant, since: 2026-01-01, until: 2027-07-01}")
    )
    limits = budgets_config(load(config))
    head = BudgetHead(limits)
    head.memory = replace(head.memory, projects={"pixels": {}})
    monkeypatch.setattr(session, "connected", connected)
    monkeypatch.setattr(head_module, "Head", lambda clients, config: head)
    close(toolkit, "2026-11")
    assert "would be: 2026-11-29 to 2026-11-30" in toolkit("budget", "close-days", "--dry-run")
    assert not head.memory.closed_until
    told = json.loads(toolkit("budget", "close-days", "--json"))
    spent = {item["name"]: Decimal(item["usd_spent"]) for item in told["budgets"]}
    charged = {"account": Decimal(0), "project": Decimal(0)}
    for month in ("2026-11", "2026-12", "2027-01"):
        for key in charged:
            made = json.loads(toolkit("report", "--period", month, "--by", key, "--json"))
            names = {"account": {"science", "vision", "language"}, "project": {"pixels"}}[key]
            rows = [row for row in made["groups"] if row[key] in names]
            charged[key] += sum(Decimal(row["total"]) for row in rows)
    assert spent == {
        "year": charged["account"].quantize(Decimal("0.01")),
        "pixels": charged["project"].quantize(Decimal("0.01")),
    }
    assert "SPENT is the report's until 2027-01-" in toolkit("budget", "status")


@pytest.mark.parametrize(
    ("period", "days"),
    [
        ("2026-Q4", ("2026-10-01", "2027-01-01")),
        ("2026", ("2026-01-01", "2027-01-01")),
        ("2026-11-29..2026-12-03", ("2026-11-29", "2026-12-04")),
        ("last-month", ("2026-12-01", "2027-01-01")),
    ],
)
def test_a_period_may_be_a_quarter_a_year_or_days(toolkit, period, days):
    made = json.loads(toolkit("report", "--period", period, "--json"))
    assert (made["asked_since"][:10], made["until"][:10]) == days
    assert made["closed"]["is_whole"]


def test_the_months_of_a_quarter_add_up_to_it(toolkit):
    totals = [
        amount(json.loads(toolkit("report", "--period", period, "--json"))["total"])
        for period in ("2026-11", "2026-12", "2026-Q4")
    ]
    assert abs(totals[0] + totals[1] - totals[2]) <= 5  # each of five instances rounds once


def test_a_report_says_the_state_of_its_month(toolkit):
    close(toolkit, "2026-11")
    said = toolkit("report", "--period", "2026-11")
    assert "period 2026-11: closed on 2027-01-03" in said
    assert "period 2026-12: open" in toolkit("report", "--period", "2026-12")
    data = json.loads(toolkit("report", "--period", "2026-11", "--json"))
    assert (data["period"]["state"], data["period"]["revision"]) == ("closed", 1)


def test_parquet_has_the_rows_of_the_csv(toolkit, tmp_path):
    path = tmp_path / "charges.parquet"
    said = toolkit("report", "--period", "2026-11", "--csv", "--parquet", str(path))
    rows = list(csv.DictReader(io.StringIO(said)))
    read = duckdb.read_parquet(str(path))
    assert read.columns == list(rows[0])
    assert [str(row[0]) for row in read.project("usd").fetchall()] == [row["usd"] for row in rows]
    assert [row[0] for row in read.project("project").fetchall()] == [
        row["project"] or None for row in rows
    ]


def test_names_are_left_out_of_every_form(toolkit, tmp_path, monkeypatch):
    """Leave them out of the HTML report too, without its trends."""
    monkeypatch.setattr(session, "connected", unreachable_aws)
    path = tmp_path / "report.html"
    for names, named in (("none", ()), ("own", ("ada",)), ("all", ("ada", "alan", "grace"))):
        words = ("report", "--period", "2026-11", "--names", names)
        texts = [toolkit(*words, *form) for form in ((), ("--json",), ("--csv",))]
        toolkit(*words, "--html", str(path))
        for text in (*texts, path.read_text()):
            assert {user for user in ("ada", "alan", "grace") if user in text} == set(named)
        assert amount(json.loads(texts[1])["total"]) > 0


def test_accounts_roll_up_to_their_parents(toolkit):
    words = ("report", "--period", "2026-11", "--roll-up")
    rows = {row["account"]: row for row in json.loads(toolkit(*words, "--json"))["roll_up"]}
    assert list(rows) == ["science", "language", "vision"]
    below = [amount(rows[name]["usd_with_below"]) for name in ("language", "vision")]
    assert amount(rows["science"]["usd_with_below"]) == sum(below)
    assert rows["vision"]["owner"] == "pi@example.org"
    assert ". vision" in toolkit(*words)


def test_a_closed_months_accounts_roll_up_as_they_were_closed(toolkit, config):
    words = ("report", "--period", "2026-11", "--roll-up")
    close(toolkit, "2026-11")
    texts = [toolkit(*words), toolkit(*words, "--json")]
    changed = config.read_text().replace("pi@example.org", "new@example.org")
    config.write_text(changed.replace("parent: science", "parent: root").replace("4711", "4712"))
    assert [toolkit(*words), toolkit(*words, "--json")] == texts
    toolkit("period", "reopen", "2026-11", "--reason", "a new owner")
    opened = toolkit(*words)
    assert "new@example.org" in opened
    assert ". vision" not in opened


@pytest.mark.parametrize("names", ["own", "none"])
def test_a_roll_up_without_all_names_has_no_owners_address(toolkit, names):
    for form in ((), ("--json",)):
        assert "@" not in toolkit(
            "report", "--roll-up", "--names", names, "--period", "2026-11", *form
        )


def test_statements_are_written_and_printed(toolkit, tmp_path):
    close(toolkit, "2026-11")
    out = tmp_path / "out"
    toolkit("statement", "--period", "2026-11", "--out", str(out))
    assert {path.name for path in out.iterdir()} == {
        "journal.csv",
        *(
            f"{name}.{kind}"
            for name in ("science", "vision", "language")
            for kind in ("html", "eml")
        ),
    }
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in out.iterdir())
    text = toolkit("statement", "--period", "2026-11", "--account", "language")
    assert "Discount of 50 %" in text
    assert "account vision" not in text
    data = json.loads(toolkit("statement", "--period", "2026-11", "--json"))
    journal = list(csv.DictReader(io.StringIO((out / "journal.csv").read_text())))
    assert sum(amount(row["debit"] or "0") for row in journal) == sum(
        amount(row["credit"] or "0") for row in journal
    )
    dues = {item["account"]: item["due"] for item in data}
    assert {row["account"]: row["debit"] for row in journal if row["text"].endswith("due")} == {
        name: due for name, due in dues.items() if due != "0.00"
    }
    only = tmp_path / "only"
    toolkit("statement", "--period", "2026-11", "--account", "vision", "--out", str(only))
    assert {path.name for path in only.iterdir()} == {"vision.html", "vision.eml"}


def test_a_dry_run_writes_no_file(toolkit, tmp_path):
    toolkit("statement", "--period", "2026-11", "--out", str(tmp_path / "out"), "--dry-run")
    assert not (tmp_path / "out").exists()


def test_months_and_their_log_are_listed(toolkit):
    close(toolkit, "2026-11")
    toolkit("period", "reopen", "2026-11", "--reason", "the wrong policy")
    close(toolkit, "2026-11")
    toolkit("period", "finalize", "2026-11", "--without-bill", "a test has none")
    rows = json.loads(toolkit("period", "list", "--json"))["periods"]
    assert [(row["period"], row["state"], row["revision"]) for row in rows] == [
        ("2026-11", "final", 2),
        ("2026-12", "open", 0),
        ("2027-01", "open", 0),
    ]
    assert [row["closed_days"] for row in rows] == [2, 31, 2]
    assert "2026-11  final" in toolkit("period", "list")
    said = toolkit("period", "log")
    assert "reopen by ada@" in said
    assert ": the wrong policy" in said
    log = json.loads(toolkit("period", "log", "--json"))
    assert [item["change"] for item in log] == [
        "review", "close", "reopen", "review", "close", "finalize",
    ]  # fmt: skip


def test_doubtful_rows_are_shown_and_approved(toolkit, config):
    grant = "grant: {name: ERC, since: 2026-01-01, until: 2026-11-01}, project: pixels"
    config.write_text(config.read_text().replace("project: pixels", grant))
    (row,) = json.loads(toolkit("period", "review", "2026-11", "--json"))["doubtful"]
    assert (row["kind"], row["subject"], row["approved_by"]) == ("grant", "vision", None)
    said = toolkit("period", "close", "2026-11", code=1)
    assert "1 doubtful row that nobody has approved" in said
    words = ("period", "approve", "2026-11", row["id"], "--reason", "agreed")
    assert f"would approve {row['id']}" in toolkit(*words, "--dry-run")
    assert f"approved {row['id']}" in toolkit(*words)
    assert "nothing to approve" in toolkit(*words)
    assert "1 doubtful row, 0 to approve" in toolkit("period", "review", "2026-11")
    toolkit("period", "close", "2026-11")
    text = toolkit("statement", "--period", "2026-11", "--account", "vision")
    assert "the grant does not cover them" in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", "--period", "2099-01"), "2099-01 is in the future"),
        (("report", "--period", "2026-11", "--since", "7d"), "leave --since and --until away"),
        (("report", "--by", "owner"), "account, user, partition, qos, project, run, job, pool"),
        (("period", "review", "2099-01"), "2099-01 is in the future"),
        (("period", "close", "2026-Q4"), "2026-Q4 is no month"),
        (("statement", "--period", "2026-11", "--account", "visoin"), "did you mean 'vision'?"),
        (
            ("period", "approve", "2026-11", "--reason", "x"),
            "name rows by their ids, or give --all",
        ),
        (("period", "reopen", "2026-11", "--reason", " "), "expected some words"),
        (("statement", "--install-timer"), "--install-timer needs --out"),
    ],
)
def test_bad_input_is_told_in_clear_words(toolkit, words, said):
    assert said in toolkit(*words, code=2)


@pytest.mark.parametrize(
    "words",
    [("period", "list"), ("report", "--period", "2026-11"), ("statement", "--period", "2026-11")],
)
def test_a_cluster_of_another_region_with_the_same_name_is_refused(toolkit, tmp_path, words):
    origin = {"version": VERSION, "region": "eu-west-1", "bucket": "demo-eu"}
    store = tmp_path / "usage" / "clusters" / "demo"
    (store / "origin.json").write_text(json.dumps(origin))
    said = toolkit(*words, code=2)
    assert "has the records of another cluster 'demo'" in said
    assert "demo-eu in eu-west-1" in said


def test_a_timer_is_installed_for_the_user(toolkit, config, tmp_path):
    words = ("statement", "--out", str(tmp_path / "out"), "--install-timer")
    folder = tmp_path / "xdg" / "systemd" / "user"
    assert "OnCalendar=" in toolkit(*words, "--dry-run")
    assert not folder.exists()
    assert "systemctl --user enable --now" in toolkit(*words)
    service = (folder / "toolkit-statements.service").read_text()
    assert str(config) in service
    assert '"statement"' in service


FORMS = ((), ("--json",), ("--csv",), ("--roll-up",))


@pytest.mark.parametrize("form", FORMS)
def test_the_days_of_a_closed_month_print_its_copy(toolkit, config, form):
    close(toolkit, "2026-11")
    text = toolkit("report", "--period", "2026-11", *form)
    config.write_text(config.read_text().replace("parent: science", "parent: root"))
    assert toolkit("report", "--period", "2026-11-01..2026-11-30", *form) == text


@pytest.mark.parametrize(
    "words",
    [
        ("--since", "2026-11-01", "--until", "2026-12-01"),
        ("--since", "2026-11-30", "--until", "2026-12-02"),
        ("--period", "2026-11-29..2026-12-03"),
        ("--period", "2026-Q4"),
    ],
)
def test_live_figures_of_closed_days_are_said_to_be_so(toolkit, words):
    toolkit("report", *words)
    assert "closed" not in toolkit.err
    close(toolkit, "2026-11")
    toolkit("report", *words)
    (line,) = toolkit.err.splitlines()
    assert line == (
        "2026-11 is closed: these figures are what is known now, not those of the closing. "
        "`toolkit report --period 2026-11` prints the copy."
    )


def test_live_savings_of_closed_days_are_said_to_be_so(toolkit):
    words = ("savings", "--since", "2026-11-29", "--until", "2026-12-02")
    toolkit(*words)
    assert "closed" not in toolkit.err
    close(toolkit, "2026-11")
    toolkit(*words)
    (line,) = toolkit.err.splitlines()
    assert line.startswith("2026-11 is closed: these figures are what is known now")


def test_a_report_of_open_days_alone_says_nothing_of_closed_months(toolkit):
    close(toolkit, "2026-11")
    for words in (
        ("--since", "2026-12-01", "--until", "2027-01-01"),
        ("--period", "2026-12"),
        ("--period", "2026-11"),
    ):
        toolkit("report", *words)
        assert not toolkit.err


def test_a_closed_month_that_is_computed_anew_is_said_to_be_so(toolkit, aws, tmp_path):
    close(toolkit, "2026-11")
    trail = tmp_path / "trail.json"
    trail.write_text('{"Records": []}')
    for option in (("--anew",), ("--cloudtrail", str(trail)), ("--record-mlflow",)):
        for period in ("2026-11", "2026-11-01..2026-11-30"):
            toolkit("report", "--period", period, *option)
            (line,) = toolkit.err.splitlines()
            assert line == (
                f"2026-11 is closed, and {option[0]} computes it anew: these figures are not "
                "those of its closing."
            )


def test_a_damaged_log_of_periods_costs_no_live_report(toolkit, tmp_path):
    close(toolkit, "2026-11")
    log = tmp_path / "usage" / "clusters" / "demo" / "periods.jsonl"
    log.write_text(log.read_text().replace("review", "finalize", 1))
    assert toolkit("report", "--since", "2026-11-29", "--until", "2026-12-02")
    (line,) = toolkit.err.splitlines()
    assert line.startswith(f"closed months: {log} line 2 does not follow")


OFFLINE = (
    ("period", "list"),
    ("report", "--period", "2026-11"),
    ("report", "--since", "2026-11-29", "--until", "2026-12-02"),
    ("savings", "--since", "2026-11-29", "--until", "2026-12-02"),
    ("statement", "--period", "2026-11"),
)


def of_account(number, **more):
    """Return the origin of an account's cluster `demo`."""
    return {
        "version": VERSION,
        "region": "us-east-1",
        "bucket": f"demo-{number}-us-east-1-bak",
        **more,
    }


@pytest.fixture
def origin(tmp_path):
    """The function that writes whose records the store has."""

    def write(content) -> None:
        path = tmp_path / "usage" / "clusters" / "demo" / "origin.json"
        path.write_text(json.dumps(content))

    return write


@pytest.fixture
def on_aws(config, tmp_path, monkeypatch):
    """The file of AWS's profiles; cluster.yaml has the profile `work`."""
    lines = [
        line
        for line in config.read_text().splitlines(keepends=True)
        if not line.strip().startswith(("endpoint_url:", "credentials_file:"))
    ]
    config.write_text("".join(lines).replace("  profile: local #", "  profile: work #"))
    path = tmp_path / "aws-config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    return path


@pytest.mark.parametrize("words", OFFLINE)
def test_a_cluster_of_another_account_with_the_same_name_and_region_is_refused(
    toolkit, origin, on_aws, words
):
    origin(of_account("111122223333"))
    on_aws.write_text("[profile work]\nsso_account_id = 999988887777\n")
    said = toolkit(*words, code=2)
    assert "has the records of another cluster 'demo'" in said
    assert "demo-111122223333-us-east-1-bak in us-east-1" in said
    assert "cluster.yaml is of demo-999988887777-us-east-1-bak in us-east-1" in said
    on_aws.write_text("[profile work]\nsso_account_id = 111122223333\n")
    toolkit(*words)
    assert not toolkit.err.count("account")


@pytest.mark.parametrize("words", OFFLINE)
def test_what_aws_said_of_a_profile_tells_clusters_apart(toolkit, origin, on_aws, words):
    profiles = {"work": "999988887777", "house": "111122223333"}
    origin(of_account("111122223333", profiles=profiles))
    said = toolkit(*words, code=2)
    assert "demo-999988887777-us-east-1-bak" in said
    assert "`toolkit usage close` asks AWS again whose account the profile is of" in said
    origin(of_account("999988887777", profiles=profiles))
    toolkit(*words)


@pytest.mark.parametrize(
    "words",
    [("period", "list"), ("period", "review", "2026-11"), ("statement", "--period", "2026-11")],
)
def test_bills_of_another_clusters_are_refused(toolkit, on_aws, words, tmp_path):
    """Refuse a shared folder of bills, with a store for each cluster."""
    on_aws.write_text("[profile work]\nsso_account_id = 999988887777\n")
    owner = tmp_path / "bills" / "clusters" / "demo"
    owner.mkdir(parents=True)
    (owner / "origin.json").write_text(json.dumps(of_account("111122223333")))
    said = toolkit(*words, code=2)
    assert "demo-111122223333-us-east-1-bak" in said
    assert "each its own $TOOLKIT_BILLS" in said
    (owner / "origin.json").write_text(json.dumps(of_account("999988887777")))
    toolkit(*words)


def test_a_report_names_bills_of_another_cluster_and_has_none_of_them(toolkit, on_aws, tmp_path):
    on_aws.write_text("[profile work]\nsso_account_id = 999988887777\n")
    owner = tmp_path / "bills" / "clusters" / "demo"
    owner.mkdir(parents=True)
    (owner / "origin.json").write_text(json.dumps(of_account("111122223333")))
    made = json.loads(toolkit("report", "--period", "2026-12", "--json"))
    assert any("has the records of another cluster" in note for note in made["notes"])
    assert "bill" not in made or made["bill"] is None


@pytest.mark.parametrize("words", OFFLINE)
def test_a_profile_that_nothing_is_known_of_is_named_once(toolkit, origin, on_aws, words, tmp_path):
    origin(of_account("111122223333", profiles={"house": "111122223333"}))
    toolkit(*words)
    (line,) = [line for line in toolkit.err.splitlines() if "account" in line]
    store = tmp_path / "usage" / "clusters" / "demo"
    assert line == (
        f"{store}: it is not known whether its records are of the AWS account of the profile "
        "work. `toolkit usage close` asks AWS."
    )


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--period", "2026-10"),
        ("report", "--period", "2026-11", "--anew"),
        ("savings", "--since", "2026-09-01", "--until", "2026-10-01"),
    ],
)
def test_where_aws_is_asked_it_says_the_account(toolkit, origin, aws, words):
    origin(of_account("999988887777"))
    said = toolkit(*words, code=2)
    assert "cluster.yaml is of demo-111122223333-us-east-1-bak" in said
    assert "from the bucket demo-999988887777-us-east-1-bak" in said
