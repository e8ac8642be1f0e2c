"""`toolkit period`, `statement` and `report --period` against the local cloud and a real store."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from slurmplugins.slurm import sacct
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_records import RecordsHead, toolkit
from tests.fakes.slurmdbd import NAMES, Row
from toolkit import cli
from toolkit.deploy import session

pytestmark = LEAVES_A_CLOUD
HOUR = 3600
NOW = datetime.now(UTC)
THIS_MONTH = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
LAST = THIS_MONTH - timedelta(days=1)
MONTH, NEXT = f"{LAST:%Y-%m}", f"{NOW:%Y-%m}"
BEGIN = int((THIS_MONTH - timedelta(days=1)).timestamp())
OTHER_PRICES = """
targets: {utilisation_percent: 1}
prices:
  as_of: 2026-01-01
  on_demand: [{type: g5.xlarge, usd_per_hour: 3}]
"""
ACCOUNTS = (
    "  - {name: vision, fairshare: 60, owner: pi@example.org, cost_centre: '4711',"
    " discount_percent: 50, project: imagenet}"
)


@dataclass
class ProjectRow(Row):
    """A row of a job with a project and another account."""

    account: str = "language"

    def text(self, token: str) -> str:
        values = super().text(token).rstrip("\n").split(sacct.delimiter(token))
        values[NAMES.index("Account")] = self.account
        values[NAMES.index("User")] = "grace"
        values[NAMES.index("WCKey")] = "tokens"
        return sacct.delimiter(token).join(values) + "\n"


@contextmanager
def no_aws(config):
    raise AssertionError("AWS was asked")
    yield


@pytest.fixture
def head(config, tmp_path, capsys, monkeypatch):
    """A head with records of last month, whose days are closed."""
    monkeypatch.setenv("TOOLKIT_USAGE_STORE", str(tmp_path / "usage"))
    monkeypatch.setenv("TOOLKIT_BILLS", str(tmp_path / "bills"))
    config.edit("  - {name: vision, fairshare: 60}", ACCOUNTS)
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    folder = tmp_path / "head"
    folder.mkdir()
    head = RecordsHead(config, folder)
    for number, kind in enumerate((Row, ProjectRow), start=1):
        start, end = BEGIN + number * 4 * HOUR, BEGIN + (number * 4 + 2) * HOUR
        head.add_life(f"i-{number}", start, end)
        head.accounting.rows[number] = kind(
            number, 100 + number, start + 100, end - 700, state="COMPLETED"
        )
    head.write()
    done(capsys, "usage", "close", "--config", str(config.path))
    return head


def done(capsys, *words, code=0):
    """Run a command; return what it printed, or its error."""
    capsys.readouterr()
    assert cli.run(list(words)) == code, capsys.readouterr().err
    said = capsys.readouterr()
    return said.err if code else said.out


def test_a_month_is_reviewed_closed_corrected_and_opened_again(head, capsys, tmp_path, monkeypatch):
    config = ("--config", str(head.config.path))

    def as_json(*words):
        return json.loads(done(capsys, *words, *config, "--json"))

    computed = as_json("report", "--period", MONTH, "--by", "project,account")
    assert computed["period"]["state"] == "open"
    projects = {(row["project"], row["account"]) for row in computed["groups"]}
    assert {("imagenet", "vision"), ("tokens", "language")} <= projects
    with monkeypatch.context() as patched:
        patched.setattr(session, "connected", no_aws)
        assert as_json("period", "review", MONTH)["doubtful"] == []
        planned = as_json("period", "close", MONTH, "--dry-run")
        assert (planned["state"], planned["usd"]) == ("review", computed["total"])
        closed = as_json("period", "close", MONTH)
        assert (closed["state"], closed["revision"]) == ("closed", 1)
        assert closed["usd"] == computed["total"]
        report = done(capsys, "report", "--period", MONTH, *config, "--json")
        done(capsys, "statement", "--period", MONTH, *config, "--out", str(tmp_path / "first"))
        finance = files_for_finance(capsys, head, tmp_path)

    head.accounting.rows[1].state = "NODE_FAIL"
    (head.folder / "records.json").unlink()
    head.write()
    corrected = as_json("usage", "close", "--all-pages")
    assert [item for item in corrected["days"] if item["correction"]]
    head.config.edit("discount_percent: 50", "discount_percent: 75")
    assert done(capsys, "report", "--period", MONTH, *config, "--json") == report
    done(capsys, "statement", "--period", MONTH, *config, "--out", str(tmp_path / "second"))
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
             for name in ("first", "second")]  # fmt: skip
    assert files[0] == files[1]
    assert set(files[0]) == {"journal.csv", *(
        f"{name}.{kind}" for name in ("vision", "language") for kind in ("html", "eml")
    )}  # fmt: skip
    (row,) = [item for item in as_json("period", "list")["periods"] if item["period"] == NEXT]
    assert (row["state"], row["corrected_periods"]) == ("open", [MONTH])
    assert cli.run(["report", "--period", NEXT, *config, "--csv"]) == 0
    assert f"not in it: corrections of {MONTH}, " in capsys.readouterr().err
    with head.config.path.open("a") as file:
        file.write(OTHER_PRICES)
    assert files_for_finance(capsys, head, tmp_path) == finance

    refused = done(capsys, "period", "review", MONTH, *config, code=1)
    assert f"{MONTH} is closed" in refused
    as_json("period", "reopen", MONTH, "--reason", "a wrong discount")
    as_json("period", "review", MONTH)
    assert as_json("period", "close", MONTH)["revision"] == 2
    log = as_json("period", "log")
    assert [item["change"] for item in log] == ["review", "close", "reopen", "review", "close"]
    assert log[2]["reason"] == "a wrong discount"
    text = done(capsys, "statement", "--period", MONTH, "--account", "vision", *config)
    assert "Discount of 75 %" in text
    assert "Revision 2 replaces the earlier ones." in " ".join(text.split())


def files_for_finance(capsys, head, folder):
    """Return the HTML report and the FOCUS file of the month."""
    files = [folder / f"month{end}" for end in (".html", ".csv")]
    options = ("--html", str(files[0]), "--focus", str(files[1]))
    done(capsys, "report", "--period", MONTH, "--config", str(head.config.path), *options)
    return [path.read_text() for path in files]


def test_two_clusters_with_one_name_share_no_store(head, capsys, tmp_path):
    store = tmp_path / "usage" / "clusters" / head.config.config.cluster
    origin = json.loads((store / "origin.json").read_text())
    (store / "origin.json").write_text(json.dumps(origin | {"bucket": "another-bucket"}))
    config = ("--config", str(head.config.path))
    commands = [("usage", "close"), ("report",), ("savings",)]
    for words in commands:
        refused = done(capsys, *words, *config, code=2)
        assert "has the records of another cluster 'demo'" in refused
        assert "another-bucket" in refused


def test_what_aws_said_at_a_closing_tells_clusters_apart_without_aws(
    head, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr(session, "connected", no_aws)
    store = tmp_path / "usage" / "clusters" / head.config.config.cluster
    origin = json.loads((store / "origin.json").read_text())
    config = ("--config", str(head.config.path))
    commands = [("period", "list"), ("statement", "--period", MONTH), ("report", "--period", MONTH)]
    for words in commands:
        done(capsys, *words, *config)
    account = origin["bucket"].split("-")[1]
    assert set(origin["profiles"].values()) == {account}
    others = origin["bucket"].replace(account, "999988887777")
    (store / "origin.json").write_text(json.dumps(origin | {"bucket": others}))
    for words in commands:
        refused = done(capsys, *words, *config, code=2)
        assert "has the records of another cluster 'demo'" in refused
        assert origin["bucket"] in refused
