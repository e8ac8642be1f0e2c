"""Account budgets and workload classes in cluster.yaml, and the head's part of them."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from slurmplugins.config import budgets as head_budgets
from slurmplugins.config.budgets import Action, PeriodKind
from tests.unit.config.test_load import GOOD, problems
from tests.unit.render.render_samples import FACTS, PRICES, a_config
from toolkit.config import load_dated, parse
from toolkit.errors import ConfigInvalid
from toolkit.render.budgets import budgets_config
from toolkit.render.burst import burst_json
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files

TEMPLATES = Path(__file__).parents[3] / "templates"
BUDGET = """\
budgets:
  vision-month:
    account: vision
    usd: 500
"""
GRANT = """\
budgets:
  erc:
    account: vision
    usd: 20000
    period: grant
    since: 2026-01-01
    until: 2027-07-01
"""
CLASSES = """\
classes:
  sweep: {priority: 10}
  train:
    priority: 50
    preempts: [sweep]
    accounts: [vision]
    partitions: [spot]
"""


def test_the_common_case_is_short():
    (budget,) = parse(GOOD + BUDGET).budgets.values()
    assert (budget.usd, budget.period) == (Decimal(500), "month")
    assert [(step.at, step.do) for step in budget.steps] == [
        (50, "warn"), (80, "warn"), (90, "warn"), (100, "hold")
    ]  # fmt: skip
    assert parse(GOOD + GRANT).budgets["erc"].until == datetime(2027, 7, 1, tzinfo=UTC)


STEPS = "    steps: [{at: 80, do: warn}, {at: 100, do: hold}]\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "path", "words"),
    [
        (BUDGET, "account: vision", "account: visio", "budgets.vision-month.account", "'vision'"),
        (BUDGET, "vision\n", "[vision, visio]\n", "budgets.vision-month.account", "'vision'"),
        (BUDGET, "    account: vision\n", "", "budgets.vision-month", "account or project"),
        (BUDGET, "500", "0", "budgets.vision-month.usd", "above 0"),
        (BUDGET, "500", "500\n    since: 2026-01-01", "budgets.vision-month.since", "only with"),
        (GRANT, "    until: 2027-07-01\n", "", "budgets.erc.period", "expected until"),
        (GRANT, "2027-07-01", "2025-07-01", "budgets.erc.until", "a day after 2026-01-01"),
        (GRANT, "2027-07-01", "2027-07-01T12:00", "budgets.erc.until", "expected a day"),
        (BUDGET + STEPS, "at: 100", "at: 80", "budgets.vision-month.steps[1].at", "more than 80"),
        (BUDGET + STEPS, "do: hold", "do: stop", "budgets.vision-month.steps[1].do", "spot-only"),
        (CLASSES, "[sweep]", "[swep]", "classes.train.preempts[0]", "did you mean 'sweep'"),
        (CLASSES, "[sweep]", "[train]", "classes.train.preempts[0]", "preempt itself"),
        (CLASSES, "[vision]", "[visio]", "classes.train.accounts[0]", "did you mean 'vision'"),
        (CLASSES, "[spot]", "[sport]", "classes.train.partitions[0]", "did you mean 'spot'"),
        (CLASSES, "sweep: {", "normal: {", "classes.normal", "Slurm's own"),
        (CLASSES, "priority: 10", "per_job: {gpu: 4}", "classes.sweep.per_job.gpu", "a TRES"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(text, old, new, path, words):
    whole = GOOD + text.replace(old, new)
    found = problems(whole)
    assert path in found, found
    line, message = found[path]
    assert words in message
    assert line > len(GOOD.splitlines())


def test_the_examples_of_the_document_are_valid():
    text = (Path(__file__).parents[3] / "docs/budgets.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (grant,) = [block for block in blocks if "erc-2026" in block]
    (limits,) = [block for block in blocks if "limits:" in block]
    for block in (grant, limits):
        blocks.remove(block)
    assert len(blocks) == 3
    other = "partitions:\n  on-demand: {pools: [gpu]}\n"
    config = parse(GOOD.replace("partitions:\n", other) + "".join(blocks))
    language = GOOD.replace("accounts:\n", "accounts:\n  - {name: language}\n")
    assert parse(language + grant).budgets["erc-2026"].accounts == ("vision", "language")
    assert config.classes.keys() == {"interactive", "sweep", "train", "release"}
    assert config.budgets["vision-month"].steps[2].do == "spot-only"
    assert config.slurm.billing == "bought"
    limited = parse(re.sub(r"(?ms)^accounts:.*", "", GOOD) + limits)
    assert limited.accounts[0].limits.total.submit == 200
    assert limited.users[0].limits.tres == {"gres/gpu": 16}


def test_two_budgets_of_one_account_and_time_are_refused():
    second = "  again: {account: vision, usd: 5, period: year}\n"
    assert "vision-month" in problems(GOOD + BUDGET + second)["budgets.again.account"][1]
    later = (
        "  next: {account: vision, usd: 5, period: grant, since: 2027-07-01, until: 2028-01-01}\n"
    )
    assert parse(GOOD + GRANT + later).budgets.keys() == {"erc", "next"}
    overlapping = later.replace("since: 2027-07-01", "since: 2027-06-30")
    assert list(problems(GOOD + GRANT + overlapping)) == ["budgets.next.account"]


def test_a_grant_pays_several_accounts_and_projects():
    text = GRANT.replace(
        "    account: vision\n", "    account: [vision]\n    project: [ImageNet, coco]\n"
    )
    config = parse(GOOD + text)
    (budget,) = budgets_config(config).budgets.values()
    assert (budget.accounts, budget.projects) == (("vision",), ("imagenet", "coco"))
    part = head_budgets.to_json(budgets_config(config))
    assert head_budgets.parse({"budgets": part}) == budgets_config(config)


def test_two_budgets_of_one_project_and_time_are_refused():
    first = "budgets:\n  one: {project: imagenet, usd: 5}\n"
    second = "  two: {account: vision, project: [ImageNet], usd: 5, period: year}\n"
    assert "budget one" in problems(GOOD + first + second)["budgets.two.project"][1]


def test_spot_only_needs_a_partition_that_buys_spot_alone():
    step = "    steps: [{at: 90, do: spot-only}]\n"
    both = GOOD.replace(
        "capacity: spot}", "capacity: spot}\n      - {type: m, capacity: on-demand}"
    )
    assert list(problems(both + BUDGET + step)) == ["budgets.vision-month.steps[0].do"]
    assert parse(GOOD + BUDGET + step).budgets
    spot = both.replace(
        "partitions:\n", "partitions:\n  cheap: {pools: [gpu], policy: spot-only}\n"
    )
    assert parse(spot + BUDGET + step).budgets


def test_a_class_cannot_preempt_where_partitions_do():
    text = GOOD.replace("partitions:\n", "partitions:\n  urgent: {pools: [gpu], priority: 5}\n")
    assert "by partition" in problems(text + CLASSES)["classes.train.preempts"][1]


@pytest.mark.parametrize(
    ("day", "path", "words"),
    [("2027-07-01", "budgets.erc.until", "ended on 2027-07-01"),
     ("2025-12-31", "budgets.erc.since", "in the future")],
)  # fmt: skip
def test_a_grant_that_ended_or_is_to_come_is_told_with_its_line(tmp_path, day, path, words):
    file = tmp_path / "cluster.yaml"
    file.write_text(GOOD + GRANT)
    assert load_dated(file, datetime(2026, 11, 26, tzinfo=UTC)).budgets
    with pytest.raises(ConfigInvalid) as caught:
        load_dated(file, datetime.fromisoformat(day).replace(tzinfo=UTC))
    (problem,) = caught.value.problems
    assert (problem.path, words in problem.message) == (path, True)
    assert path.rpartition(".")[2] in file.read_text().splitlines()[problem.line - 1]


def test_the_head_gets_budgets_families_and_partitions_that_buy_on_demand():
    accounts = [
        {"name": "vision"},
        {"name": "lab", "parent": "vision"},
        {"name": "guests", "parent": "lab"},
        {"name": "language"},
    ]
    budgets = {"b": {"account": "vision", "usd": "12.5", "period": "quarter"}}
    text = burst_json(a_config(accounts=accounts, users=[], budgets=budgets), FACTS, PRICES)
    config = head_budgets.parse(json.loads(text))
    (budget,) = config.budgets.values()
    assert (budget.usd, budget.kind) == (Decimal("12.5"), PeriodKind.QUARTER)
    assert budget.steps[-1].action is Action.HOLD
    assert config.families == {"vision": {"vision", "lab", "guests"}}
    assert config.on_demand
    assert config.folder == "/srv/head/budgets"
    assert config.weights == {}


def test_the_head_gets_the_weights_of_slurm_conf_where_they_follow_what_is_bought():
    slurm = {"version": "24.11", "suspend_time": 30, "resume_timeout": 180, "billing": "bought"}
    given = a_config(slurm=slurm)
    config = head_budgets.parse(json.loads(burst_json(given, FACTS, PRICES)))
    conf = slurm_files(slurm_context(given, PRICES), TEMPLATES)["slurm.conf"]
    for name, item in config.weights.items():
        assert f"TRESBillingWeights={item.weights} " in conf, name
    assert config.weights["spot"].usd_per_hour == {"gpu": Decimal("0.4024")}
