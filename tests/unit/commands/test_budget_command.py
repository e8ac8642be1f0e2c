"""`toolkit budget status`, `plan`, `apply` and `override`, as people and scripts see them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurmplugins.budgets.memory import Override
from slurmplugins.budgets.not_applied import with_budgets
from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from slurmplugins.config.budgets import Action, PeriodKind
from slurmplugins.head import read_commands
from tests.fakes.budgets import NOW, a_budget, a_config, a_job, a_memory, snapshot
from toolkit import cli
from toolkit.budgets import facts
from toolkit.config import load
from toolkit.render.budgets import budgets_config

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"
BUDGETS = "budgets:\n  vision-month: {account: vision, usd: 100}\n"


class FakeHead:
    """A head node with one account budget, of which 85 dollars are spent."""

    def __init__(self, config) -> None:
        self.commands: list[list[str]] = []
        self.config = config
        self.memory = a_memory("85")

    def run(self, argv, *, timeout=60):
        del timeout
        self.commands.append(list(argv))
        if "--plan" not in argv:
            return ""
        texts = argv[argv.index("--plan") + 1 :]
        config = with_budgets(self.config, *texts) if texts else self.config
        given = snapshot(a_job(), memory=self.memory, config=config)
        return json.dumps(printable(plan(given), given))


@pytest.fixture
def head(as_head, monkeypatch, tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(EXAMPLE.read_text() + BUDGETS)
    monkeypatch.setenv("TOOLKIT_CONFIG", str(path))
    return as_head(FakeHead(budgets_config(load(path))))


def test_status_shows_spent_committed_forecast_step_and_since_when(head, capsys):
    assert cli.run(["budget", "status"]) == 0
    header, row, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == [
        *("BUDGET", "FOR", "UNTIL", "USD", "SPENT", "COMMITTED", "FREE", "FORECAST"),
        *("STEP", "SINCE"),
    ]
    assert "vision-month  vision  2026-12-01  100.00  85.00" in row
    assert "80 % warn  2026-11-26 12:00" in row


def test_status_tells_that_a_grant_ended(head, capsys):
    grant = a_budget(kind=PeriodKind.GRANT, since=NOW - 9e6, until=NOW, projects=("imagenet",))
    head.config = a_config(grant)
    assert cli.run(["budget", "status"]) == 0
    out = capsys.readouterr().out
    assert "vision-month  vision, project imagenet  2026-11-26" in out
    assert "vision-month: the grant ended on 2026-11-26 and pays no job" in out


def test_status_is_json_for_scripts(head, capsys):
    assert cli.run(["budget", "status", "--json"]) == 0
    (budget,) = json.loads(capsys.readouterr().out)["budgets"]
    assert (budget["usd_spent"], budget["step"], budget["actions"]) == ("85.00", 80, ["warn"])


def test_status_tells_overrides_stale_figures_and_problems(head, capsys):
    override = Override(NOW + 3600, "eve\x1b[31m", "a deadline", NOW)
    head.memory = a_memory("85", measured_until=NOW - 7200, overrides={"vision-month": override})
    assert cli.run(["budget", "status"]) == 0
    out = capsys.readouterr().out
    assert "vision-month: no step holds until 2026-11-26 13:00 UTC, by eve" in out
    assert "stale: spending is known until 2026-11-26 10:00 UTC; no new step is taken" in out
    assert "\x1b" not in out


def test_a_cluster_without_budgets_says_so(as_head, monkeypatch, capsys):
    monkeypatch.setenv("TOOLKIT_CONFIG", str(EXAMPLE))
    as_head(FakeHead(replace(a_config(), budgets={})))
    assert cli.run(["budget", "status"]) == 0
    assert "no budget: cluster.yaml has no `budgets`" in capsys.readouterr().out


def test_plan_and_a_dry_run_show_the_changes_and_make_none(head, capsys):
    for words in (["budget", "plan"], ["budget", "apply", "--dry-run"]):
        assert cli.run(words) == 0
        out = capsys.readouterr().out
        assert "~ account vision: GrpTRESMins=billing → " in out
        assert "(vision-month: 80 % warn)" in out
    assert [argv[-1] for argv in head.commands] == ["--plan", "--plan"]
    assert cli.run(["budget", "plan", "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["subject"] == "account vision"


def test_apply_makes_a_pass_now(head, capsys):
    assert cli.run(["budget", "apply"]) == 0
    assert head.commands[-1] == list(facts.PROGRAM)
    assert "Slurm has these limits now" in capsys.readouterr().out


def test_other_budgets_on_the_head_are_told_before_anything_is_done(head, capsys):
    head.config = a_config(a_budget((100, Action.REFUSE)))
    assert cli.run(["budget", "apply"]) == 1
    assert "the head has other budgets than cluster.yaml" in capsys.readouterr().err
    assert [argv[-1] for argv in head.commands] == ["--plan"]


def test_a_grant_that_ended_is_refused_with_its_line(as_head, monkeypatch, tmp_path, capsys):
    path = tmp_path / "cluster.yaml"
    grant = "period: grant, since: 2020-01-01, until: 2021-01-01"
    path.write_text(EXAMPLE.read_text() + BUDGETS.replace("usd: 100", f"usd: 100, {grant}"))
    monkeypatch.setenv("TOOLKIT_CONFIG", str(path))
    head = as_head(FakeHead(budgets_config(load(path))))
    assert cli.run(["budget", "plan"]) == 2
    line = len(path.read_text().splitlines())
    error = capsys.readouterr().err
    assert f"line {line}: budgets.vision-month.until" in error
    assert "the grant ended on 2021-01-01" in error
    assert head.commands == []


def test_an_override_is_remembered_and_a_pass_follows(head, capsys):
    words = [
        "budget",
        "override",
        "vision-month",
        "--usd",
        "50",
        "--until",
        "3d",
        "--reason",
        "a b",
    ]
    assert cli.run([*words, "--dry-run"]) == 0
    assert head.commands == []
    assert cli.run(words) == 0
    first, second = head.commands
    assert first[: len(facts.PROGRAM) + 3] == [*facts.PROGRAM, "override", "vision-month", "50"]
    assert first[-1] == "a b"
    assert second == list(facts.PROGRAM)
    assert "budget vision-month: 50 USD more until" in capsys.readouterr().out
    assert cli.run(["budget", "override", "vision-month", "--end"]) == 0
    assert head.commands[-2][-2:] == ["end-override", "vision-month"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("3d", 3 * 86_400), ("2w", 14 * 86_400)]
)
def test_an_override_ends_as_long_from_now_as_it_says(head, text, seconds):
    words = ["vision-month", "--lift", "--until", text, "--reason", "x"]
    before = int(time.time())
    assert cli.run(["budget", "override", *words]) == 0
    end = int(head.commands[0][len(facts.PROGRAM) + 3])
    assert before + seconds <= end <= time.time() + seconds


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["vision-month"], "one of --usd, --lift and --end"),
        (["vision-month", "--lift", "--end"], "one of --usd, --lift and --end"),
        (["visions", "--end"], "it has vision-month"),
        (["vision-month", "--lift", "--until", "1h"], "--reason"),
        (["vision-month", "--lift", "--reason", "x"], "--until"),
        (["vision-month", "--lift", "--reason", "x", "--until", "2020-01-01"], "not in the future"),
        (["vision-month", "--usd", "x", "--reason", "x", "--until", "1h"], "above 0"),
        (["vision-month", "--usd", "-1", "--reason", "x", "--until", "1h"], "above 0"),
        (["vision-month", "--usd", "1e9", "--reason", "x", "--until", "1h"], "not US dollars"),
        (["vision-month", "--lift", "--reason", "x", "--until", "401d"], "within 400 days"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_wrong_override_is_refused_here(head, words, text, options, capsys):
    assert cli.run(["budget", "override", *words, *options]) == 2
    assert text in capsys.readouterr().err
    assert head.commands == []


def edit(old: str, new: str) -> None:
    path = Path(os.environ["TOOLKIT_CONFIG"])
    path.write_text(path.read_text().replace(old, new))


def test_a_plan_tries_budgets_that_the_head_does_not_have_yet(head, capsys):
    edit("usd: 100}", "usd: 50, steps: [{at: 100, do: hold}]}\n  new: {account: language, usd: 9}")
    assert cli.run(["budget", "plan"]) == 0
    out = capsys.readouterr().out
    assert "vision-month  vision    2026-12-01  50.00  85.00" in out
    assert "100 % hold" in out
    assert "~ account vision: GrpTRESRunMins=billing → 0 (vision-month: 100 % hold)" in out
    assert (
        "note: the head has other budgets than cluster.yaml (new: new; changed: vision-month), so"
        " this is the plan after `toolkit apply`"
    ) in out
    assert [argv[: len(facts.PLAN)] for argv in head.commands] == [list(facts.PLAN)] * 2
    assert all(read_commands.is_read(argv) for argv in head.commands), "a reader may try it"
    assert cli.run(["budget", "plan", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["not_applied"] == {"new": ["new"], "changed": ["vision-month"], "removed": []}
    assert [item["step"] for item in value["budgets"]] == [100, None]


def test_a_plan_tells_the_budgets_that_cluster_yaml_no_longer_has(head, capsys):
    head.memory = a_memory("85", limited=frozenset({"vision"}))
    edit(BUDGETS, "")
    assert cli.run(["budget", "plan"]) == 0
    out = capsys.readouterr().out
    assert "(removed: vision-month)" in out


def test_a_plan_of_applied_budgets_has_no_note(head, capsys):
    assert cli.run(["budget", "plan", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["not_applied"] == {"new": [], "changed": [], "removed": []}
    assert value["budgets"][0]["usd_spent"] == "85.00"
    assert [argv[-1] for argv in head.commands] == ["--plan"]
    assert cli.run(["budget", "plan"]) == 0
    assert "note:" not in capsys.readouterr().out


def test_an_account_that_moved_below_a_budgets_account_is_a_change_of_the_budget(head, capsys):
    edit("{name: language, ", "{name: language, parent: vision, ")
    assert cli.run(["budget", "plan"]) == 0
    assert "(changed: vision-month)" in capsys.readouterr().out


def test_the_program_of_a_step_stays_here(head):
    edit("usd: 100}", "usd: 100, notify: [/usr/bin/curl, secret]}")
    assert cli.run(["budget", "plan"]) == 0
    assert "secret" not in str(head.commands)


def test_budgets_that_fit_into_no_command_are_told(head, capsys):
    many = "".join(f"  b{n}: {{project: p{n}, usd: 9}}\n" for n in range(200))
    edit(BUDGETS, BUDGETS + many)
    assert cli.run(["budget", "plan"]) == 1
    assert "too long for a plan" in capsys.readouterr().err
    assert [argv[-1] for argv in head.commands] == ["--plan"]


def test_figures_are_a_readers():
    assert read_commands.is_read(facts.PLAN)
    assert read_commands.is_read([*facts.PLAN, '{"limits": {}}'])
    assert not read_commands.is_read([*facts.PLAN, "--plan"])
    assert not read_commands.is_read([*facts.PLAN, "{" + "x" * (facts.LONGEST_JSON + 1) + "}"])
    assert not read_commands.is_read(facts.PROGRAM)
    assert not read_commands.is_read([*facts.PROGRAM, "end-override", "vision-month"])


def test_an_answer_that_cannot_be_read_is_told(as_head, monkeypatch, tmp_path, capsys):
    class Head:
        def run(self, argv, *, timeout=60):
            return '{"at": 1}'

    monkeypatch.setenv("TOOLKIT_CONFIG", str(EXAMPLE))
    as_head(Head())
    assert cli.run(["budget", "status"]) == 1
    assert "slurm-budget's answer can't be read" in capsys.readouterr().err
