"""`toolkit report` and `toolkit accounts`, from command line to printed text."""

import csv
import io
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.accounting.samples import T0
from tests.unit.accounting.test_sacct import HELP, row
from toolkit.accounting import sacct
from toolkit.commands import accounts as accounts_command, moments, report as report_command
from toolkit.deploy import head as head_module, session as session_module

CONFIG = str(Path(__file__).parents[3] / "examples" / "local.yaml")
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


def accounts(*args):
    return CliRunner().invoke(accounts_command.command, [args[0], "--config", CONFIG, *args[1:]])


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """A clock of the commands that stands at half past ten."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime(2026, 11, 21, 10, 30, tzinfo=tz)

    for module in (report_command, moments):
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


def test_csv_sums_to_the_total(cluster):
    rows = csv.DictReader(io.StringIO(report("--csv").stdout))
    assert sum(Decimal(row["usd"]) for row in rows) == Decimal("0.0995")


def test_html_is_written_beside_the_printed_report(cluster, tmp_path):
    page = tmp_path / "report.html"
    result = report("--html", str(page))
    assert "vision/ada" in result.stdout
    assert page.read_text().startswith("<!doctype html>")


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
        (["--by", "colour"], "account, user, job"),
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
    assert json.loads(accounts("plan", "--json").stdout) == {"changes": [], "left_alone": []}


def test_accounts_apply_dry_run_changes_nothing(slurmdbd):
    assert "+ account vision" in accounts("apply", "--dry-run").stdout
    assert slurmdbd.changes == []


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
