"""The budgets that the line at submit knows."""

import os
import time
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets import files
from slurmplugins.budgets.figures import Spending, figures
from slurmplugins.config.budgets import Action, BudgetsConfig, PeriodKind
from slurmplugins.errors import StateError
from slurmplugins.head import price_file
from tests.fakes.budgets import NOVEMBER, NOW, TODAY, a_budget, a_memory

VISION = Spending(frozenset({"vision"}), committed=Decimal(20))

CONFIG = BudgetsConfig()


def state(usd, *, budget=None, until=NOW):
    return figures(budget or a_budget(), a_memory(usd, measured_until=until), VISION, NOW)


def test_an_account_has_what_its_tightest_budget_leaves(tmp_path):
    wide = a_budget(usd=Decimal(1000), name="vision-year")
    files.save_remaining(tmp_path, [state("70"), state("70", budget=wide)], CONFIG)
    assert price_file.read_remaining(tmp_path, time.time()).accounts == {"vision": 10.0}


def test_a_budget_that_is_used_up_leaves_nothing(tmp_path):
    files.save_remaining(tmp_path, [state("99")], CONFIG)
    assert price_file.read_remaining(tmp_path, time.time()).accounts == {"vision": 0.0}


@pytest.mark.parametrize(
    "item",
    [
        state("10", budget=a_budget((50, Action.WARN))),
        state("10", until=NOW - 86_400),
    ],
    ids=["only warns", "stale"],
)
def test_a_budget_without_a_limit_or_a_known_state_says_nothing(tmp_path, item):
    files.save_remaining(tmp_path, [state("10")], CONFIG)
    files.save_remaining(tmp_path, [item], CONFIG)
    assert not (tmp_path / files.REMAINING).exists()


def test_a_folder_that_can_not_be_written_is_an_error_with_its_path(tmp_path):
    with pytest.raises(StateError, match=r"remaining\.json"):
        files.save_remaining(tmp_path / "none", [replace(state("10"))], CONFIG)


def test_an_account_below_has_what_its_parents_budget_leaves(tmp_path):
    config = BudgetsConfig(families={"vision": frozenset({"vision", "vision-lab"})})
    files.save_remaining(tmp_path, [state("70")], config)
    remaining = price_file.read_remaining(tmp_path, time.time())
    assert remaining.accounts == {"vision": 10.0, "vision-lab": 10.0}


def test_a_grant_that_ended_leaves_nothing_and_says_so(tmp_path):
    grant = a_budget(kind=PeriodKind.GRANT, since=NOVEMBER, until=NOW, projects=("imagenet",))
    files.save_remaining(tmp_path, [state("10", budget=grant)], CONFIG)
    words = (
        "vision-month: the grant of account vision and project imagenet ended on 2026-11-26 UTC,"
        " and pays no job"
    )
    assert price_file.read_remaining(tmp_path, time.time()) == price_file.Remaining(
        accounts={"vision": 0.0},
        projects={"imagenet": 0.0},
        ended_accounts={"vision": words},
        ended_projects={"imagenet": words},
    )


def test_an_old_file_says_nothing(tmp_path):
    """Passes may fail for hours, and the file stays."""
    files.save_remaining(tmp_path, [state("70")], CONFIG)
    os.utime(tmp_path / files.REMAINING, (time.time() - 901,) * 2)
    assert price_file.read_remaining(tmp_path, time.time()) == price_file.Remaining()


def test_a_project_has_what_its_budget_leaves_and_a_refusal_says_why(tmp_path):
    budget = a_budget((90, Action.REFUSE), accounts=(), projects=("imagenet",))
    config = BudgetsConfig({"a": budget}, account_projects={"language": "imagenet", "lab": "other"})
    memory = a_memory("0", projects={"imagenet": {"language": {TODAY: Decimal(90)}}})
    spending = Spending(frozenset(), frozenset({"imagenet"}))
    files.save_remaining(tmp_path, [figures(budget, memory, spending, NOW)], config)
    assert price_file.read_remaining(tmp_path, time.time()) == price_file.Remaining(
        projects={"imagenet": 0.0},
        refused={
            "imagenet": "vision-month: project imagenet may cost 100.00 USD until 2026-12-01 UTC,"
            " and no job is taken before"
        },
        account_projects={"language": "imagenet"},
    )
