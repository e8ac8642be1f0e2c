"""`toolkit reconcile-bill` with a saved report, and what `toolkit report` then says."""

import csv
import io
import json
from datetime import datetime
from decimal import Decimal

import pytest

from tests.unit.bill.bills import CORPUS, NOW, changed, fixture, report_json
from toolkit import cli
from toolkit.bill import record
from toolkit.commands import reconcile_bill


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of records."""
    monkeypatch.setenv("TOOLKIT_BILLS", str(tmp_path / "bills"))
    return tmp_path / "bills"


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """A clock that stands at the end of the report."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime.fromtimestamp(NOW, tz)

    monkeypatch.setattr(reconcile_bill, "datetime", Clock)


@pytest.fixture
def run(tmp_path, folder, capsys):
    """Run the command on a fixture's bill."""

    def call(name, *args, path=None):
        report = tmp_path / f"{name}.json"
        report.write_text(json.dumps(report_json(*fixture(name).get("instances", []))))
        bill = str(path or CORPUS / f"{name}.csv")
        code = cli.run(["reconcile-bill", bill, "--report", str(report), *args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_bill_that_agrees_exits_with_0_and_records_its_days(run, folder):
    code, out, _ = run("plain-month")
    assert code == 0
    assert "lines above the tolerance of 0.010000 USD: 0 of 1" in out
    assert out.endswith("record: 30 days final\n")
    assert len(record.read_entries(folder / "demo.jsonl")) == 31
    assert run("plain-month")[1].endswith("record: nothing new\n")
    assert len(record.read_entries(folder / "demo.jsonl")) == 31


def test_a_gap_exits_with_2_and_is_told_line_by_line(run):
    code, out, _ = run("another-cluster")
    assert code == 2
    rows = [line.split() for line in out.splitlines()]
    missing = ["2026-11-05", "i-0e00000000000005e", "-", "0.000000", "1.006000", "-", "+1.006000"]
    assert [*missing, "missing", "in", "ledger"] in rows
    assert "i-0a00000000000001a" not in out
    assert "i-0a00000000000001a" in run("another-cluster", "--all")[1]


def test_a_wider_tolerance_lets_a_gap_pass(run):
    assert run("price-differs", "--tolerance", "0.04")[0] == 0
    assert run("price-differs", "--tolerance", "0.0399999")[0] == 2


def test_an_unknown_gap_is_above_any_tolerance(run):
    assert run("huge-cost", "--tolerance", "1000000")[0] == 2


@pytest.mark.parametrize(
    "args", [["--tolerance", "much"], ["--tolerance", "-1"], ["--json", "--csv"], ["--colour"]]
)
def test_wrong_usage_exits_with_1(run, args):
    assert run("plain-month", *args)[0] == 1


@pytest.mark.parametrize("name", ["other-currency", "cut-short", "missing-columns"])
def test_an_error_exits_with_1_and_records_nothing(run, folder, name):
    code, out, err = run(name)
    assert (code, out) == (1, "")
    assert f"[{fixture(name)['error']}]" in err
    assert record.read_entries(folder / "demo.jsonl") == ()


def test_dry_run_writes_nothing(run, folder):
    assert run("plain-month", "--dry-run")[1].endswith("record: would add 30 days final\n")
    assert not folder.exists()


def test_a_correction_is_shown(run, tmp_path):
    run("plain-month")
    later = changed("plain-month", tmp_path, "1.0060000000", "0.5060000000")
    code, out, _ = run("plain-month", path=later)
    assert code == 2
    assert out.splitlines()[-2:] == [
        "record: 1 corrections of final days",
        "correction of 2026-11-03: i-0a00000000000001a from 2.012000 to 1.512000 (-0.500000 USD)",
    ]


def test_json_has_every_line_and_money_as_text(run):
    code, out, _ = run("savings-plan", "--json")
    content = json.loads(out, parse_float=lambda text: pytest.fail(f"a float: {text}"))
    assert code == 2
    assert content["within_tolerance"] is False
    assert content["lines"][0]["pricing"] == ["savings plan"]
    assert content["lines"][0]["gap"] == "-0.306000"
    assert content["total"]["gap"] == "-0.306000"
    assert [item["class"] for item in content["classes"]] == [
        "instances",
        "commitments",
        "other usage",
    ]
    assert content["recorded"][0] == {"entry": "bill", "bill": content["bill"]}


def test_csv_adds_up_to_the_bill_and_has_no_formula(run):
    _, out, _ = run("formula-in-a-tag", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert sum(Decimal(row["billed"]) for row in rows) == Decimal("4.024010")
    cells = [
        cell for row in rows for cell in row.values() if not cell.lstrip("-").strip("0.").isdigit()
    ]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


def test_days_outside_the_report_are_told_and_not_compared(run, tmp_path):
    path = changed("price-differs", tmp_path, "2026-11-05", "2026-10-30", times=4)
    _, out, _ = run("price-differs", path=path)
    words = "0.400000 USD of our instances are on days that the bill or the report does not cover"
    assert f"note: {words}: 2026-10-30" in out


def test_small_gaps_that_add_up_are_above_the_tolerance(run, tmp_path):
    path = changed("spot-and-on-demand", tmp_path, "0.3600000000", "0.3680000000")
    path.write_text(path.read_text().replace("0.5030000000", "0.5110000000"))
    code, out, _ = run("spot-and-on-demand", path=path)
    assert code == 2
    assert "2026-11-05: each line is within tolerance, and their sum is not: 0.016000 USD" in out


def test_a_folder_of_records_can_be_named(run, tmp_path):
    run("plain-month", "--records", str(tmp_path / "other"))
    assert (tmp_path / "other" / "demo.jsonl").exists()


def test_a_folder_that_can_not_be_written_ends_with_a_sentence(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("plain-month", "--records", str(tmp_path / "file" / "bills"))
    assert code == 1
    assert "can't write" in err
