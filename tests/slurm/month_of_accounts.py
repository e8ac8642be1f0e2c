"""A month of three accounts: real jobs, their quotes, its closing, a correction, and a reopening.

It takes too long for `make test`, and is run by hand (docs/testing.md):

    make month

Jobs run now, on a cluster of its own. Then the month must be over: Debian's `faketime` tells the
people's commands, and the head's own writer of records, that the next month has begun. Quotes,
statements, pages and the FOCUS file are in $TOOLKIT_TEST_MONTH (a folder, /tmp/month).
"""

from __future__ import annotations

import base64
import csv
import json
import logging
import os
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.focus import openchargeback, test_focus_validator
from tests.focus.test_focus_validator import COUNTS, NOT_FOR_ANY_FILE, broken, validated
from tests.slurm import conftest
from tests.slurm.conftest import TOOLKIT, Cluster
from tests.slurm.month_jobs import Compared, as_table, compare
from tests.slurm.month_play import BUDGET, run_jobs
from tests.slurm.month_settings import settings
from tests.slurm.page_pictures import take_pictures
from toolkit.config import load
from toolkit.deploy.head import Head
from toolkit.deploy.session import Clients

pytestmark = [pytest.mark.machines, pytest.mark.timeout(7200, func_only=True)]
log = logging.getLogger(__name__)

FOLDER = Path(os.environ.get("TOOLKIT_TEST_MONTH", "/tmp/month"))
PROGRAMS = ("faketime", "chromium", "pdftoppm", "pngquant")
ON_HEAD = "/run/libfaketime.so.1"
DROP_IN = "/run/systemd/system/slurm-records.service.d/month.conf"
TODAY = datetime.now(UTC)
MONTH = f"{TODAY:%Y-%m}"
OVER = (TODAY.replace(day=1) + timedelta(days=32)).replace(day=2)
NEXT = f"{OVER:%Y-%m}"
WRITTEN = f"{OVER:%Y-%m-%d} 00:30:00"
PRICE_DIFFERS = re.compile(r"price (and seconds )?differs?")
BEFORE_WORK = OVER.replace(hour=8, minute=0, second=0, microsecond=0)


@dataclass(frozen=True)
class People:
    """The finance people's computer, whose clock is in the next month."""

    config: Path

    @property
    def now(self) -> datetime:
        """Return the time on their clock."""
        return BEFORE_WORK + (datetime.now(UTC) - TODAY)

    def toolkit(self, *argv: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the CLI as if the month were over."""
        env = {
            **os.environ,
            "TOOLKIT_CONFIG": str(self.config),
            "TOOLKIT_USAGE_STORE": str(FOLDER / "store"),
            "TOOLKIT_BILLS": str(FOLDER / "bills"),
        }
        done = subprocess.run(
            ["faketime", f"{self.now:%Y-%m-%d %H:%M:%S}", str(TOOLKIT), *argv],
            capture_output=True, text=True, timeout=600, check=False, env=env,
        )  # fmt: skip
        log.warning("toolkit %s\n%s%s", " ".join(argv), done.stdout[-3000:], done.stderr[-3000:])
        assert may_fail or done.returncode == 0, f"{argv}:\n{done.stdout}\n{done.stderr}"
        return done


def configure(state: Path, path: Path, port: int) -> None:
    """Write the cluster.yaml of the month."""
    with path.open("w") as file:
        YAML(typ="rt").dump(settings(state, port), file)


@pytest.fixture(scope="module")
def month(state):
    """A cluster with the three accounts."""
    check_programs()
    path = state / "month.yaml"
    try:
        if conftest.StateFiles(state).running() is None or not path.exists():
            conftest.toolkit("local", "down")
            (state / "usage.jsonl").unlink(missing_ok=True)  # another cluster of this name is in it
            conftest.deploy(state, path, configure)
        config = load(path)
        yield Cluster(path, Head(Clients(config), config))
    finally:
        if not conftest.is_kept():
            conftest.toolkit("local", "down")


def check_programs() -> None:
    """Raise AssertionError for a missing program.

    Most are called after half an hour.
    """
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    assert not missing, f"not installed (docs/testing.md): {', '.join(missing)}"
    for variable in (test_focus_validator.VARIABLE, openchargeback.VARIABLE):
        python = os.environ.get(variable, "")
        assert shutil.which(python), f"${variable} is no Python (docs/finance.md): {python!r}"


def end_month_on_head(cluster: Cluster) -> None:
    """Let the head write its records as in the next month.

    The unit, its user and its bucket are the cluster's own. Its Python alone has the other clock:
    Slurm's tokens would be out of date.
    """
    (path,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
    library = base64.b64encode(path.read_bytes()).decode()
    cluster.run("sh", "-c", 'printf %s "$1" | base64 -d > "$2"', "sh", library, ON_HEAD)
    lines = (
        "[Service]",
        f"Environment=LD_PRELOAD={ON_HEAD}",
        f'Environment="FAKETIME=@{WRITTEN}"',
        "Environment=FAKETIME_ONLY_CMDS=python3,slurm-records",
    )
    cluster.run("systemctl", "stop", "slurm-records.timer")
    cluster.run("install", "-D", "/dev/null", DROP_IN)
    cluster.run("sh", "-c", 'printf "%s\\n" "$@" > "$0"', DROP_IN, *lines)
    cluster.run("systemctl", "daemon-reload")
    try:
        cluster.run("systemctl", "start", "slurm-records.service", timeout=600)
    finally:
        cluster.run("rm", "-f", DROP_IN)
        cluster.run("systemctl", "daemon-reload")


@pytest.fixture(scope="module")
def quotes(month):
    """Each job's quote against what the report charges for it."""
    jobs = run_jobs(month, FOLDER / "scripts")
    report = json.loads(month.toolkit("report", "--since", "1d", "--json").stdout)
    rows = compare(report, jobs)
    log.warning("quotes and costs:\n%s", as_table(rows))
    (FOLDER / "quotes.txt").write_text(as_table(rows) + "\n")
    return rows


@pytest.fixture(scope="module")
def people(month, quotes):
    """The people's computer, after the end of the month."""
    end_month_on_head(month)
    for name in ("store", "bills", "openchargeback"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    own = FOLDER / "cluster.yaml"
    shutil.copy(month.config, own)
    return People(own)


def test_a_job_costs_what_its_quote_says_of_its_time(quotes):
    ran = [row for row in quotes if row.seconds]
    assert len(ran) >= len(quotes) - 1, "a cancelled job may have run for no second"
    as_quoted = [row for row in ran if row.offer["lifecycle"] in " ".join(row.cost.bought)]
    for row in as_quoted:
        assert row.cost.work > 0, as_table([row])
        assert is_near(row), as_table([row])
    (other,) = [row for row in ran if row not in as_quoted]
    assert other.cost.bought == ("g5.xlarge on-demand",), "EC2 had no spot instance"
    assert other.cost.work > other.quoted


def is_near(row: Compared) -> bool:
    """Return whether the work cost what was quoted, within 2 %."""
    return abs(row.cost.work - row.quoted) <= row.quoted / 50 + Decimal("0.0001")


def test_every_day_of_the_month_is_closed_once(people):
    first = json.loads(people.toolkit("usage", "close", "--json").stdout)
    assert first["days"]
    assert "nothing to close" in people.toolkit("usage", "close").stdout


def test_a_person_approves_each_doubtful_row_before_the_month_is_closed(people):
    refused = people.toolkit("period", "close", MONTH, may_fail=True)
    assert refused.returncode != 0
    assert f"`toolkit period review {MONTH}`" in refused.stderr
    review = json.loads(people.toolkit("period", "review", MONTH, "--json").stdout)
    assert "grant" in {row["kind"] for row in review["doubtful"]}, "language's grant has ended"
    refused = people.toolkit("period", "close", MONTH, may_fail=True)
    assert refused.returncode != 0
    assert "that nobody has approved" in refused.stderr
    ids = [row["id"] for row in review["doubtful"]]
    people.toolkit("period", "approve", MONTH, *ids, "--reason", "seen with the heads of groups")
    assert "would close" in people.toolkit("period", "close", MONTH, "--dry-run").stdout
    people.toolkit("period", "close", MONTH)
    people.toolkit("statement", "--period", MONTH, "--out", str(FOLDER / "statements"))


def documents(people, name: str) -> dict[str, bytes]:
    """Return everything that is printed of the month."""
    out = FOLDER / name
    people.toolkit("statement", "--period", MONTH, "--out", str(out))
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    for option in ("--json", "--csv"):
        files[option] = people.toolkit("report", "--period", MONTH, option).stdout.encode()
    for option in ("--html", "--focus"):
        path = out.with_name(f"{name}.{'html' if option == '--html' else 'csv'}")
        people.toolkit("report", "--period", MONTH, option, str(path))
        files[option] = path.read_bytes()
    return files


def total(people) -> Decimal:
    report = json.loads(people.toolkit("report", "--period", MONTH, "--json").stdout)
    return Decimal(report["total"])


def reconciled(people, *options: str) -> subprocess.CompletedProcess[str]:
    """Hold the local cloud's bill of the month to the closed month."""
    bill, report = FOLDER / "bill.csv", FOLDER / "report.json"
    ends = ("--since", f"{MONTH}-01", "--until", f"{NEXT}-01")
    people.toolkit("local", "invoice", *ends, "--granularity", "daily", "--cur", str(bill))
    report.write_text(people.toolkit("report", "--period", MONTH, "--json").stdout)
    words = ("reconcile-bill", str(bill), "--report", str(report), "--final", *options)
    return people.toolkit(*words, may_fail=True)


def test_a_closed_month_prints_the_same_bytes_after_a_price_was_amended(people):
    before = documents(people, "issued")
    assert documents(people, "again") == before
    assert PRICE_DIFFERS.search(reconciled(people, "--dry-run").stdout)
    amend_price(people.config)
    people.toolkit("usage", "close", "--again-from", f"{MONTH}-01")
    assert documents(people, "amended") == before
    months = json.loads(people.toolkit("period", "list", "--json").stdout)["periods"]
    (later,) = [item for item in months if item["period"] == NEXT]
    assert later["corrected_periods"] == [MONTH]
    assert Decimal(later["corrections_usd"]) > 0
    people.toolkit("statement", "--period", NEXT)


def amend_price(config: Path) -> None:
    """Take the contract away that the bill does not know."""
    yaml = YAML(typ="rt")
    content = yaml.load(config.read_text())
    content["prices"] = {"as_of": f"{OVER:%Y-%m-%d}"}
    content["targets"] = {"utilisation_percent": 1}  # no page of a closed month has this one
    with config.open("w") as file:
        yaml.dump(content, file)


def test_a_person_opens_the_month_again_and_closes_it_with_the_correction(people):
    old = total(people)
    people.toolkit("period", "reopen", MONTH, "--reason", "AWS bills without the contract")
    review = json.loads(people.toolkit("period", "review", MONTH, "--json").stdout)
    ids = [row["id"] for row in review["doubtful"] if not row["approved_by"]]
    if ids:
        people.toolkit(
            "period", "approve", MONTH, *ids, "--reason", "as before, at the bill's prices"
        )
    people.toolkit("period", "close", MONTH)
    assert total(people) > old
    lines = people.toolkit("period", "log").stdout
    assert "AWS bills without the contract" in lines


def test_the_month_is_final_by_the_clouds_bill(people):
    assert not PRICE_DIFFERS.search(reconciled(people).stdout)
    people.toolkit("period", "finalize", MONTH)
    refused = people.toolkit("period", "reopen", MONTH, "--reason", "once more", may_fail=True)
    assert refused.returncode != 0
    assert "a final period never changes" in refused.stderr


def test_files_of_the_month_for_people_and_tools(people):
    for name, option in (("month.html", "--html"), ("month.csv", "--focus")):
        people.toolkit("report", "--period", MONTH, option, str(FOLDER / name))
    people.toolkit("statement", "--period", MONTH, "--out", str(FOLDER / "statements"))
    with (FOLDER / "statements/journal.csv").open() as file:
        postings = list(csv.DictReader(file))
    debit, credit = (
        sum((Decimal(row[side] or 0) for row in postings), Decimal(0))
        for side in ("debit", "credit")
    )
    assert {"vision", "language", "robotics"} <= {row["account"] for row in postings}
    assert debit == credit
    assert abs(debit - total(people)) <= Decimal("0.01")
    take_pictures(FOLDER / "month.html")
    take_pictures(FOLDER / "statements/vision.html")


def test_the_focus_file_keeps_the_rules_and_has_the_sum_of_the_month(people):
    with (FOLDER / "month.csv").open() as file:
        billed = sum((Decimal(row["BilledCost"]) for row in csv.DictReader(file)), Decimal(0))
    assert billed == total(people)
    output = validated(FOLDER / "month.csv")
    assert broken(output) <= NOT_FOR_ANY_FILE, output[-3000:]
    assert int(COUNTS.search(output)[2]) > 250  # passed


def test_openchargeback_has_the_sum_of_each_account(people):
    report = json.loads(people.toolkit("report", "--period", MONTH, "--json").stdout)
    sums = defaultdict(Decimal)
    for charge in report["charges"]:
        if charge["account"]:
            sums[charge["account"]] += Decimal(charge["usd"])
    assert {"vision", "language", "robotics"} <= sums.keys()
    folder = FOLDER / "openchargeback"
    assert openchargeback.imported(FOLDER / "month.csv", folder) == sums


def test_bad_input_gets_a_clear_word(people):
    """Name an unknown account, the future, and a second cluster."""

    def refusal(*argv: str, by: People = people) -> str:
        done = by.toolkit(*argv, may_fail=True)
        assert done.returncode
        return done.stderr

    later = f"{OVER.year + 1}-01"
    unknown = refusal("statement", "--period", MONTH, "--account", "visoin")
    assert "visoin" in unknown
    assert "vision" in unknown
    script = str(FOLDER / "scripts/resnet.sbatch")
    assert "did you mean vision?" in refusal("quote", "--account=visoin", "--time=5", script)
    for command in (("report", "--period"), ("period", "review"), ("statement", "--period")):
        assert "is in the future" in refusal(*command, later)
    content = people.config.read_text().replace("us-east-1", "eu-central-1")
    other = FOLDER / "other.yaml"
    other.write_text(content)
    assert "another cluster 'november'" in refusal("usage", "close", by=People(other))
    grant = people.toolkit("statement", "--period", MONTH, "--account", "language").stdout
    assert "the grant does not cover them" in grant


def budgets(month) -> dict[str, dict]:
    """Return the head's budgets by name."""
    figures = json.loads(month.toolkit("budget", "status", "--json").stdout)["budgets"]
    return {item["name"]: item for item in figures}


def test_the_heads_budgets_get_the_amounts_of_the_closed_month(month, people):
    planned = json.loads(people.toolkit("budget", "close-days", "--dry-run", "--json").stdout)
    before = {name: item["usd_spent"] for name, item in budgets(month).items()}
    given = json.loads(people.toolkit("budget", "close-days", "--json").stdout)
    assert given["months"] == planned["months"]
    rows = people.toolkit("report", "--period", MONTH, "--by", "account", "--json")
    costs = {row["account"]: Decimal(row["total"]) for row in json.loads(rows.stdout)["groups"]}
    after = {name: item["usd_spent"] for name, item in budgets(month).items()}
    for account in ("vision", "robotics"):
        assert Decimal(after[f"{account}-month"]) == round(costs[account], 2)
    assert after != before, "the head knows no minimum charge"


def test_a_restored_backup_brings_what_budgets_have_spent(month, people):
    words = ("--config", str(month.config))
    before = budgets(month)
    assert before["robotics-month"]["override"]["usd"] == "2"
    conftest.toolkit("backup", "now", *words)
    month.run("sh", "-c", "rm -r /srv/head/budgets/*")
    month.run(*BUDGET)
    lost = budgets(month)
    assert lost["robotics-month"]["override"] is None
    assert lost["robotics-month"]["usd_spent"] != before["robotics-month"]["usd_spent"]
    conftest.toolkit("backup", "restore", "latest", "--yes", *words)
    month.run(*BUDGET)
    after = budgets(month)
    for name, item in before.items():
        assert after[name]["usd_spent"] == item["usd_spent"]
        assert after[name]["override"] == item["override"]
    assert "demonstration for the funder" in month.run("cat", "/srv/head/budgets/audit.jsonl")
