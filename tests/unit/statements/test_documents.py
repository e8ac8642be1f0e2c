"""Files of statements: hostile names, mails, units, settings."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from decimal import Decimal
from email import message_from_bytes
from email.policy import default
from fractions import Fraction
from pathlib import Path

import pytest

from tests.unit.statements.statement_samples import ISSUE, LATE, SETTINGS, USES
from toolkit.accounting.attempt_names import Names
from toolkit.config import parse
from toolkit.errors import ConfigInvalid
from toolkit.statements import accounting_journal, render, settings, timer
from toolkit.statements.build import Content, build
from toolkit.statements.documents import documents, file_name
from toolkit.statements.model import RateLine

LOCAL = (Path(__file__).parents[3] / "examples" / "local.yaml").read_text()
OPEN = replace(ISSUE, closed_at=None, known_to="2026-11-21")


def made(uses=USES, own=SETTINGS):
    return build(Content(uses, {"2026-10": LATE}, {}), own, OPEN, Names.OWN)


def test_a_mail_can_be_sent_as_it_is():
    (statement,) = (item for item in made().statements if item.account.name == "vision")
    mail = message_from_bytes(render.mail(statement), policy=default)
    assert mail["To"] == "pi@example.org"
    assert mail["Subject"].startswith("Statement 2026-11, account vision, cluster demo: ")
    body = mail.get_content()
    assert all(len(line) <= 72 for line in body.splitlines())
    assert "PRELIMINARY, with the days up to 2026-11-21" in " ".join(body.split())


def test_short_work_has_hours_that_give_its_amount():
    """Count 229 seconds at 2.50 US dollars an hour."""
    use = replace(
        USES[0], instance_type="g5.xlarge", seconds=Fraction(229), component="useful work"
    )
    statement = next(s for s in made((use,)).statements if s.account.name == use.account)
    assert "g5.xlarge: 0.0636 node-hours at 2.50" in render.text(statement)


@pytest.mark.parametrize(
    ("hours", "rate", "cents", "shown"),
    [("0.0636", "10", 64, "0.0636"), ("620.4", "2.50", 155_100, "620.40"), ("2", None, 7, "2.00")],
)
def test_the_hours_of_a_rate_times_the_rate_are_its_amount(hours, rate, cents, shown):
    line = RateLine("g5.xlarge", Decimal(hours), rate and Decimal(rate), cents)
    statement = replace(made().statements[0], rate_lines=(line,), rated=cents)
    assert f"g5.xlarge: {shown} node-hours" in render.text(statement)


@pytest.mark.parametrize("name", ["../../x", "a b", "", "journal", "é", "x" * 80, "-x", "a\nb"])
def test_an_account_of_any_name_has_a_harmless_file(name):
    assert file_name(name).startswith("account-")
    uses = [replace(use, account=name or "(no account)") for use in USES]
    found = documents(made(tuple(uses)), SETTINGS)
    assert all("/" not in file and "\n" not in file for file in found)
    mail = next(body for file, body in found.items() if file.endswith(".eml"))
    assert message_from_bytes(mail, policy=default)["Subject"]


def test_no_cell_of_the_journal_is_a_formula():
    uses = tuple(replace(use, account='=HYPERLINK("x")') for use in USES)
    rows = accounting_journal.as_csv(made(uses), SETTINGS).splitlines()
    assert not [row for row in rows if ',"=' in row or ",=" in row]


def test_settings_of_a_closed_month_are_read_back():
    assert settings.from_json(settings.to_json(SETTINGS)) == SETTINGS


def test_cluster_yaml_has_owners_grants_rates_and_discounts():
    text = LOCAL.replace(
        "{name: vision, fairshare: 60}",
        "{name: vision, fairshare: 60, owner: pi@example.org, cost_centre: '4711',"
        " grant: {name: ERC, since: 2026-01-01, until: 2026-12-31}, subsidy_usd: 20.5}",
    )
    section = (
        "statements: {issuer: HPC, discount_percent: 10, names: none, list_price: rate-card,"
        " rate_card: {as_of: 2026-10-01, gpu_hour: 2.5, node_hours: {c7i.large: 0.2}}}"
    )
    read = settings.settings_of(parse(f"{text}\n{section}\n"))
    vision = read.account("vision")
    assert (vision.owner, vision.cost_centre, vision.subsidy_cents) == (
        "pi@example.org",
        "4711",
        2050,
    )
    assert vision.discount_percent == read.account("unknown").discount_percent == 10
    assert vision.grant.covers("2026-12-31")
    assert not vision.grant.covers("2027-01-01")
    assert read.rates.per_hour("g5.xlarge") == Decimal("2.5")
    assert read.rates.per_hour("p5.48xlarge") == 20
    assert read.rates.per_hour("c7i.large") == Decimal("0.2")
    assert read.rates.per_hour("m7i.large") is None


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("statements: {list_price: rate-card}", "expected statements.rate_card with its rates"),
        ("statements: {rate_card: {as_of: 2026-01-01}}", "expected gpu_hour, node_hours or both"),
        ("statements: {discount_percent: 101}", "a percentage from 0 to 100"),
        ("statements: {sender: nobody}", "an email address"),
        ('statements: {ledger: {recovery: "=1"}}', "up to 40 of A-Z"),
    ],
)
def test_wrong_settings_are_refused_with_their_place(section, words):
    with pytest.raises(ConfigInvalid, match=words):
        parse(f"{LOCAL}\n{section}\n")


def test_a_grant_that_ends_before_it_begins_is_refused():
    grant = "grant: {name: x, since: 2026-02-01, until: 2026-01-01}"
    text = LOCAL.replace("{name: vision, fairshare: 60}", f"{{name: vision, {grant}}}")
    with pytest.raises(ConfigInvalid, match="expected a day not before `since`"):
        parse(text)


def test_the_timers_units_are_good_to_systemd(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_USAGE_STORE", '/a "b" $c %d')
    units = timer.units(tmp_path / "cluster.yaml", tmp_path / "my %statements of $c")
    for name, content in units.items():
        timer.write(tmp_path / "units" / name, content)
    program = shutil.which("systemd-analyze")
    assert program, "tests run on Debian, which has it"
    paths = [str(tmp_path / "units" / name) for name in units]
    checked = subprocess.run(
        [program, "verify", *paths], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    service = units["toolkit-statements.service"]
    assert f'"{tmp_path}/my %%statements of $$c"' in service
    # Environment= expands no variable (systemd.exec): there two signs would be two.
    assert '"TOOLKIT_USAGE_STORE=/a \\"b\\" $c %%d"' in service
    assert service.count("ExecStart=") == 1


def test_a_closing_that_fails_stops_no_statement(tmp_path):
    """Order statements behind the closing, and require nothing of it.

    systemd.unit(5) says so of `Wants=`.
    """
    units = timer.units(tmp_path / "cluster.yaml", tmp_path)
    lines = units["toolkit-statements.service"].splitlines()
    assert {"Wants=toolkit-usage-close.service", "After=toolkit-usage-close.service"} <= {*lines}
    assert not [line for line in lines if line.startswith("Requires=") or '"close"' in line]
    assert '"usage" "close"' in units["toolkit-usage-close.service"]
