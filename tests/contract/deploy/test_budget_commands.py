"""`toolkit budget` on a deployed cluster: who may look, and what runs on the head."""

from __future__ import annotations

import json

import pytest

from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from tests.contract.deploy import conftest
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.fakes.budgets import a_job, a_memory, snapshot
from toolkit import cli
from toolkit.config import load
from toolkit.render.budgets import budgets_config

pytestmark = LEAVES_A_CLOUD
BUDGETS = "budgets:\n  vision-month: {account: vision, usd: 100}\n"


def toolkit(config, *words):
    return cli.run([*words[:2], "--config", str(config.path), *words[2:]])


@pytest.fixture(scope="module")
def cluster(shared):
    """A cluster with one account budget, whose head answers as slurm-budget does."""
    shared.path.write_text(shared.path.read_text() + BUDGETS)
    given = snapshot(a_job(), memory=a_memory("85"), config=budgets_config(load(shared.path)))
    answer = json.dumps(printable(plan(given), given)).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(conftest.ANSWERS, "slurm-budget --plan", answer)
        assert cli.run(["deploy", "--config", str(shared.path)]) == 0
        yield shared


@pytest.fixture
def deployed(cluster, capsys):
    """The cluster, with cluster.yaml as it was deployed."""
    text = cluster.path.read_text()
    cluster.actor.driver.ran.clear()
    capsys.readouterr()
    yield cluster
    cluster.path.write_text(text)


def test_a_budget_is_shown_planned_applied_and_overridden(deployed, capsys):
    assert toolkit(deployed, "budget", "status", "--json") == 0
    (budget,) = json.loads(capsys.readouterr().out)["budgets"]
    assert (budget["accounts"], budget["usd_spent"], budget["step"]) == (["vision"], "85.00", 80)
    assert toolkit(deployed, "budget", "plan") == 0
    assert "~ account vision: GrpTRESMins=billing" in capsys.readouterr().out
    ran = deployed.actor.driver.ran
    assert all("slurm-budget --plan" in text for text in ran), "a look changes nothing"

    assert toolkit(deployed, "budget", "apply") == 0
    assert ran[-1].split("\n")[0].endswith("slurm-budget")
    words = ("--lift", "--until", "2h", "--reason", "a deadline; id")
    assert toolkit(deployed, "budget", "override", "vision-month", *words) == 0
    assert "slurm-budget override vision-month lift " in ran[-2]
    assert "'a deadline; id'" in ran[-2]


def test_status_names_the_timer_of_budgets(deployed, capsys):
    assert cli.run(["status", "--json", "--config", str(deployed.path)]) in (0, 1)
    assert "slurm-budget.timer" in json.loads(capsys.readouterr().out)["services"]


def test_budgets_that_are_not_applied_yet_reach_the_head_as_one_word(deployed, capsys):
    deployed.edit("usd: 100", "usd: 200")
    assert toolkit(deployed, "budget", "plan") == 0
    assert "(changed: vision-month), so this is the plan after" in capsys.readouterr().out
    ran = deployed.actor.driver.ran
    assert '"usd":"200"' in ran[-1]
    assert all("slurm-budget --plan" in text for text in ran), "a look changes nothing"


def test_a_head_with_other_budgets_is_applied_first(deployed, capsys):
    deployed.edit("usd: 100", "usd: 200")
    assert toolkit(deployed, "budget", "apply") == 1
    assert "`toolkit apply`" in capsys.readouterr().err
