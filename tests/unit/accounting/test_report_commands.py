"""`toolkit report` and `toolkit accounts`, from command line to printed text."""

import csv
import io
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.accounting.samples import T0
from tests.unit.accounting.test_sacct import HELP, row
from toolkit.accounting import sacct
from toolkit.accounting.allocation import Window
from toolkit.accounts import Plan
from toolkit.commands import (
    accounts as accounts_command,
    moments,
    reconcile_bill as reconcile_bill_command,
    report as report_command,
    savings as savings_command,
)
from toolkit.commands.report_facts import period_before
from toolkit.deploy import head as head_module, session as session_module
from toolkit.errors import ToolkitError
from toolkit.quote import planned_starts, predictions
from toolkit.quote.planned_starts import PlannedStart

CONFIG = str(Path(__file__).parents[3] / "examples" / "local.yaml")
CUR = Path(__file__).parents[2] / "corpus" / "cur"
RECORD = {
    "instance_id": "i-1",
    "node": "gpu-001",
    "pool": "gpu",
    "partition": "spot",
    "attempt": "a-1",
    "type": "g5.xlarge",
    "zone": "us-east-1a",
    "lifecycle": "spot",
    "launched_at": T0,
    "running_at": T0 + 5,
    "ended_at": T0 + 1000,
    "end_cause": "suspend",
    "price": "0.36",
}


class FakeCloud:
    """EC2 and S3 as a report reads them.

    The instance ledger has one instance.
    """

    account = "123456789012"

    def client(self, service):
        assert service in {"ec2", "s3"}
        return self

    def get_paginator(self, name):
        self.listing = name
        return self

    def paginate(self, **arguments):
        if self.listing == "list_objects_v2" and arguments["Prefix"].startswith("records/"):
            assert arguments["Bucket"] == "demo-123456789012-us-east-1-bak"
            yield {}
        elif self.listing == "list_objects_v2":
            assert arguments["Bucket"] == "demo-123456789012-us-east-1"
            yield {
                "Contents": [
                    {
                        "Key": "ledger/instances/i-1.json",
                        "LastModified": datetime.fromtimestamp(T0 + 1000, UTC),
                    }
                ]
            }
        elif self.listing == "describe_instances":
            yield {"Reservations": []}
        else:
            yield {"SpotPriceHistory": []}

    def get_object(self, **arguments):
        return {"Body": io.BytesIO(json.dumps(RECORD).encode())}


class FakeHead:
    """A head node with one job of ada's on one node.

    MLflow has one run of the job.
    """

    def __init__(self, clients, config) -> None:
        pass

    def run(self, argv, *, timeout=60):
        if "--helpformat" in argv:
            return HELP
        if "sacct" in argv:
            delimiter_option = next(part for part in argv if part.startswith("--delimiter="))
            token = delimiter_option.removeprefix("--delimiter=").strip("\x1f")
            assert len(token) == 8
            line = row(
                Start=str(T0 + 100),
                End=str(T0 + 900),
                NNodes="1",
                NodeList="gpu-001",
                AllocTRES="cpu=4",
            )
            names = sacct.fields(HELP)
            values = line.split(sacct.delimiter("5f2d"))
            return sacct.delimiter(token).join(values[: len(names)]) + "\n"
        if "sacctmgr" in argv:
            return f"demo|gpu-001|{T0 - 30}|{T0 + 1100}|i-1|g5.xlarge|\n"
        if argv[0] == "scontrol":
            node = {"name": "gpu-001", "state": ["IDLE"], "cpus": 4, "real_memory": 15000}
            return json.dumps({"nodes": [node]})
        assert argv[0].endswith("/slurm-runs")
        return '[{"run_id": "r2", "status": "KILLED"}]\n'


@pytest.fixture
def cluster(monkeypatch):
    """A cluster that answers without a network."""

    @contextmanager
    def connected(config):
        yield FakeCloud()

    monkeypatch.setattr(session_module, "connected", connected)
    monkeypatch.setattr(head_module, "Head", FakeHead)


@pytest.fixture
def slurmdbd(cluster, monkeypatch):
    slurm = FakeSacctmgr()
    monkeypatch.setattr(head_module, "Head", lambda clients, config: slurm)
    return slurm


def report(*args):
    day = ["--since", "2026-11-21", "--until", "2026-11-21T10:30"]
    return CliRunner().invoke(
        report_command.command, ["--config", CONFIG, *day, *args], catch_exceptions=False
    )


@pytest.fixture(autouse=True)
def records(monkeypatch, tmp_path):
    """A folder of records of bills that is nobody's."""
    monkeypatch.setenv("TOOLKIT_BILLS", str(tmp_path / "bills"))
    return tmp_path / "bills"


def accounts(*args):
    return CliRunner().invoke(accounts_command.command, [args[0], "--config", CONFIG, *args[1:]])


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """A clock of the commands that stands at half past ten."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime(2026, 11, 21, 10, 30, tzinfo=tz)

    for module in (report_command, savings_command, moments):
        monkeypatch.setattr(module, "datetime", Clock)


def test_the_report_is_printed(cluster):
    result = report()
    assert result.exit_code == 0
    assert "vision/ada" in result.stdout
    assert ["instance", "cost", "0.099500"] in [
        line.split()[:3] for line in result.stdout.splitlines()
    ]


def test_json_is_one_document_on_standard_output(cluster):
    data = json.loads(report("--json", "--by", "job").stdout)
    assert (data["total"], data["by"], data["since"]) == (
        "0.099500",
        ["job"],
        "2026-11-21T10:00:00Z",
    )


def test_the_prices_of_cluster_yaml_are_in_the_report(cluster, tmp_path):
    """Show half an hour of an unused reservation, at 0.06 an hour."""
    reserved = (
        "{type: m7i.large, count: 1, usd_per_hour: 0.06, since: 2026-11-21, until: 2027-01-01}"
    )
    path = tmp_path / "cluster.yaml"
    path.write_text(
        f"{Path(CONFIG).read_text()}\n"
        f"prices: {{as_of: 2026-11-01, reserved_instances: [{reserved}]}}\n"
        "cost_policy: {boot: cluster}\n"
    )
    day = ["--since", "2026-11-21T10:00", "--json"]
    result = CliRunner().invoke(report_command.command, ["--config", str(path), *day])
    data = json.loads(result.stdout)
    charges = {row["component"]: row for row in data["charges"]}
    assert charges["unused commitment"]["usd"] == "0.030000"
    assert charges["unused commitment"]["price_source"] == "reserved"
    assert charges["boot"]["user"] is None
    assert Decimal(data["total"]) == Decimal("0.0995") + Decimal("0.03")


def test_csv_sums_to_the_total(cluster):
    rows = csv.DictReader(io.StringIO(report("--csv").stdout))
    assert sum(Decimal(row["usd"]) for row in rows) == Decimal("0.0995")


def test_html_is_written_beside_the_printed_report(cluster, tmp_path):
    page = tmp_path / "report.html"
    result = report("--html", str(page))
    assert "vision/ada" in result.stdout
    assert page.read_text().startswith("<!doctype html>")


def test_html_has_the_reports_cost_and_no_trend_without_a_period_before(cluster, tmp_path):
    page = tmp_path / "report.html"
    report("--html", str(page))
    text = page.read_text()
    assert "$0.099500" in text
    assert "there are no trends" in text
    assert "target 70.0 %" in text


@pytest.mark.parametrize("name", ["focus.csv", "focus.parquet"])
def test_focus_is_written_beside_the_printed_report(cluster, tmp_path, name):
    path = tmp_path / name
    result = report("--focus", str(path))
    assert "vision/ada" in result.stdout
    assert f"written: {path}, 3 rows" in result.stderr
    with duckdb.connect() as connection:
        read = connection.read_csv if name.endswith("csv") else connection.read_parquet
        rows = read(str(path)).project("BilledCost, SubAccountId").fetchall()
    assert round(sum(cost for cost, _ in rows), 6) == 0.0995
    assert {account for _, account in rows} == {"vision"}


def refused(*args):
    return CliRunner().invoke(report_command.command, ["--config", CONFIG, *args])


def test_focus_of_two_months_is_refused_and_the_report_is_printed(cluster, tmp_path):
    words = ["--since", "2026-10-30", "--focus", str(tmp_path / "focus.csv")]
    launched_in_october = refused(*words)
    assert launched_in_october.exit_code == 0  # the first instance is of November
    assert "vision/ada" in launched_in_october.stdout


def test_a_focus_file_without_a_known_ending_is_refused_before_anything_is_read(tmp_path):
    result = refused("--focus", str(tmp_path / "focus.xlsx"))
    assert "tells no format" in str(result.exception)


def savings(*args):
    day = ["--since", "2026-11-21", "--until", "2026-11-21T10:30"]
    return CliRunner().invoke(savings_command.command, ["--config", CONFIG, *day, *args])


def saved_rows():
    return json.loads(savings("--json").stdout)["savings"]


def test_savings_are_a_table_and_json(cluster):
    assert "spot instances" in savings().stdout
    data = json.loads(savings("--json").stdout)
    (spot,) = [row for row in data["savings"] if row["measure"] == "spot instances"]
    assert spot["month"] == "2026-11"
    # 995 s on demand at 1.006, less 995 s at the price tag's 0.36
    assert spot["saved"] == "0.178547"
    assert (spot["cost"], spot["quantity"]) == ("0.000000", "0.276")


def test_savings_have_the_later_starts_of_this_computers_record(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_PREDICTIONS", str(tmp_path))
    assert "later start" not in [row["measure"] for row in saved_rows()]
    start = PlannedStart("7", T0 - 60, T0 - 30, T0 + 9000, "g5.xlarge", Decimal("0.72"))
    planned_starts.add(tmp_path / "demo.jsonl", start)
    (line,) = [row for row in saved_rows() if row["measure"] == "later start"]
    # each hour at 0.72 in place of 0.36
    assert float(line["saved"]) == pytest.approx(0.36 * float(line["quantity"]), abs=0.0005)


class HeadWithRuns(FakeHead):
    """A head whose MLflow has a measured run of the job."""

    runs = True

    def run(self, argv, *, timeout=60):
        if argv[0].endswith("/slurm-runs"):
            if not self.runs:
                raise ToolkitError("the tracking server is away")
            values = {
                "run_id": "r", "name": "digits 7", "status": "FINISHED", "ended": None,
                "started": T0 + 120.0, "params": {},
                "tags": {
                    "toolkit.job_id": "7",
                    "toolkit.hardware": "1 x g5.xlarge, 1 x NVIDIA A10G",
                },
                "metrics": {
                    "toolkit.gpu_memory_peak_mib": 9000.0,
                    "toolkit.samples_per_second": 100.0,
                },
            }  # fmt: skip
            return json.dumps([values])
        return super().run(argv, timeout=timeout)


@pytest.fixture
def followed(cluster, tmp_path, monkeypatch):
    """A record that recommended one A10G, after four were measured."""
    monkeypatch.setattr(head_module, "Head", HeadWithRuns)
    monkeypatch.setenv("TOOLKIT_PREDICTIONS", str(tmp_path))
    values = (T0 - 9000, "digits", "A10G", 1, 9900.0, None, 0.4)
    before = ("g5.xlarge", "g5.12xlarge", 4, 100.0)
    predictions.add(tmp_path / "demo.jsonl", predictions.Prediction(*values, *before))


@pytest.mark.usefixtures("followed")
def test_savings_have_the_runs_that_followed_a_recommendation():
    (line,) = [row for row in saved_rows() if row["measure"] == "right size"]
    # g5.12xlarge costs 5.672 an hour, g5.xlarge 1.006, for as many samples
    expected = (5.672 - 1.006) * float(line["quantity"])
    assert float(line["saved"]) == pytest.approx(expected, rel=0.01)


@pytest.mark.usefixtures("followed")
def test_without_the_tracking_server_savings_lack_the_right_size_alone(monkeypatch):
    monkeypatch.setattr(HeadWithRuns, "runs", False)
    result = savings("--json")
    assert "no right size: the tracking server is away" in result.stderr
    measures = {row["measure"] for row in json.loads(result.stdout)["savings"]}
    assert "spot instances" in measures
    assert "right size" not in measures


@pytest.mark.parametrize(
    ("since", "until", "before"),
    [
        ("2026-11-01", "2026-12-01", "2026-10-01"),
        ("2026-03-01", "2026-04-01", "2026-02-01"),
        ("2026-11-01", "2026-11-08", "2026-10-25"),
        ("2026-11-21T10:00", "2026-11-21T10:30", "2026-11-21T09:30"),
    ],
)
def test_the_period_before_is_the_month_before_or_as_long(since, until, before):
    first, last, expected = (
        int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
        for text in (since, until, before)
    )
    assert period_before(Window(first, last)) == Window(expected, first)


def a_bill(folder, usd):
    """Return the bill, with its invoice, of the cluster's one instance."""
    text = (CUR / "plain-month.csv").read_text().replace("i-0a00000000000001a", "i-1")
    text = text.replace("2026-11-03", "2026-11-21").replace("1.0060000000", usd)
    path = folder / f"{usd}.csv"
    path.write_text(text)
    return str(path)


def reconcile_bill(monkeypatch, *args):
    """Run the command on the fifth of December, when November is over."""

    class December(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime(2026, 12, 5, tzinfo=tz)

    monkeypatch.setattr(reconcile_bill_command, "datetime", December)
    command = reconcile_bill_command.command
    return CliRunner().invoke(command, ["--config", CONFIG, *args], standalone_mode=False)


def test_a_bill_is_held_to_a_fresh_report(cluster, monkeypatch, tmp_path):
    result = reconcile_bill(monkeypatch, a_bill(tmp_path, "0.0497500000"), "--json")
    content = json.loads(result.stdout)
    assert content["total"]["estimated"] == "0.099500"  # 995 s at the price tag's 0.36
    assert content["total"]["billed"] == "0.099500"
    assert result.return_value == 0


def test_the_report_tells_the_status_of_its_days_and_corrections(cluster, monkeypatch, tmp_path):
    assert "days against AWS's bill: 1 estimated, 0 reconciled, 0 final" in report().stdout
    for usd in ("0.0497500000", "0.0397500000"):
        reconcile_bill(monkeypatch, a_bill(tmp_path, usd))
    text = report().stdout
    assert "days against AWS's bill: 0 estimated, 0 reconciled, 1 final" in text
    assert "correction of 2026-11-21: i-1 from 0.099500 to 0.079500" in text
    bill = json.loads(report("--json").stdout)["bill"]
    assert (bill["final_days"], bill["corrections"][0]["difference"]) == (1, "-0.020000")
    page = tmp_path / "report.html"
    report("--html", str(page))
    assert "0 estimated, 0 reconciled, 1 final" in page.read_text()


def test_a_damaged_record_of_bills_costs_no_report(cluster, records):
    records.mkdir()
    (records / "demo.jsonl").write_text("surprise\n")
    result = report()
    assert result.exit_code == 0
    assert "note: record of bills:" in result.stdout
    assert "vision/ada" in result.stdout


def test_cloudtrails_stops_are_taken_off(cluster, tmp_path):
    calls = [("StopInstances", "10:03:20"), ("StartInstances", "10:05:00")]
    records = [
        {
            "eventSource": "ec2.amazonaws.com",
            "eventName": name,
            "eventTime": f"2026-11-21T{clock}Z",
            "responseElements": {"instancesSet": {"items": [{"instanceId": "i-1"}]}},
        }
        for name, clock in calls
    ]
    (tmp_path / "a.json").write_text(json.dumps({"Records": records}))
    (tmp_path / "b.json").write_text("<html>")
    data = json.loads(report("--json", "--cloudtrail", str(tmp_path)).stdout)
    assert data["total"] == "0.089500"
    notes = "\n".join(data["notes"])
    assert "i-1: stopped 2026-11-21 10:03:20, started 2026-11-21 10:05:00" in notes
    assert "b.json: no CloudTrail file" in notes
    assert report("--cloudtrail", str(tmp_path / "nowhere")).exit_code == 2


def test_costs_are_recorded_in_mlflow_on_request(cluster):
    messages = report("--record-mlflow").stderr
    assert "cost recorded on 1 run\n" in messages
    assert "ended as their jobs did: 1\n" in messages


def test_a_part_of_a_cost_is_not_recorded_in_mlflow(cluster):
    messages = report("--since", "2026-11-21T10:05", "--record-mlflow").stderr
    assert "cost recorded on 0 runs\n" in messages
    assert "only a part of the cost of 1 jobs" in messages


def test_the_report_is_printed_even_if_its_html_page_can_not_be_written(cluster, tmp_path):
    day = ["--since", "2026-11-21", "--html", str(tmp_path / "nowhere" / "report.html")]
    result = CliRunner().invoke(report_command.command, ["--config", CONFIG, *day])
    assert "vision/ada" in result.stdout
    assert "No such file" in str(result.exception)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--by", "colour"], "account, user, partition, qos, project, run, job, pool, type"),
        (["--since", "yesterday"], "is not a time"),
        (["--since", "2026-11-22"], "is not before"),
        (["--until", "2020-01-01"], "is not before"),
        (["--json", "--csv"], "exclude each other"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_the_valid_values(cluster, args, words):
    result = report(*args)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize("since", ["7d", "90m", "36h", "99999w", "2026-11-01T12:30"])
def test_times_are_dates_or_ages(cluster, since):
    assert report("--since", since).exit_code == 0


def test_accounts_plan_changes_nothing_and_apply_does(slurmdbd):
    planned = accounts("plan")
    assert "+ account vision under root, fairshare 60" in planned.stdout
    assert slurmdbd.changes == []
    assert "accounts: 4 changed" in accounts("apply").stdout
    assert accounts("plan").stdout == "accounts: nothing to change\n"
    nothing = {"changes": [], "left_alone": [], "notes": []}
    assert json.loads(accounts("plan", "--json").stdout) == nothing


def test_accounts_apply_dry_run_changes_nothing(slurmdbd):
    assert "+ account vision" in accounts("apply", "--dry-run").stdout
    assert slurmdbd.changes == []


def test_accounts_of_somebody_else_are_adopted_by_an_option_alone(slurmdbd):
    slurmdbd.accounts["vision"] = {"parent": "root", "fairshare": "1", "organization": "x\x1b"}
    refused = accounts("plan")
    assert refused.exit_code == 1
    assert "account vision was not made by the toolkit" in str(refused.exception)
    assert "~ account vision: adopted" in accounts("plan", "--adopt").stdout
    assert slurmdbd.changes == []
    assert accounts("apply", "--adopt").exit_code == 0
    assert accounts("plan").stdout == "accounts: nothing to change\n"


def test_accounts_plan_says_what_of_cluster_yaml_it_does_not_change(slurmdbd, monkeypatch):
    made = Plan((), ("account old",), ("user ada in account vision: not changed, because x",))
    monkeypatch.setattr(accounts_command, "_plan", lambda *args, **options: made)
    assert accounts("plan").stdout == (
        "  user ada in account vision: not changed, because x\n"
        "  account old: not in cluster.yaml, left alone\n"
        "accounts: nothing to change\n"
    )
    assert json.loads(accounts("plan", "--json").stdout)["notes"] == list(made.notes)


def test_names_in_slurmdbd_do_not_control_the_terminal(slurmdbd):
    slurmdbd.accounts["a\x1b[2J"] = {"parent": "root", "fairshare": "1", "organization": "x"}
    assert "account a?[2J, not made by the toolkit" in accounts("plan").stdout


def test_accounts_prune_requires_yes(slurmdbd):
    accounts("apply")
    slurmdbd.accounts["old"] = {"parent": "root", "fairshare": "1", "organization": "toolkit"}
    change_count = len(slurmdbd.changes)
    refused = accounts("apply", "--prune")
    assert refused.exit_code == 1
    assert "would remove account old" in str(refused.exception)
    assert len(slurmdbd.changes) == change_count
    assert accounts("apply", "--prune", "--yes").exit_code == 0
    assert "old" not in slurmdbd.accounts
