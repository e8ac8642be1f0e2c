"""The budgets that the line at submit knows."""

import os
import time
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets import files
from slurmplugins.budgets.ladder import Spending, figures
from slurmplugins.config.budgets import Action, BudgetsConfig
from slurmplugins.errors import StateError
from slurmplugins.head import price_file
from tests.fakes.budgets import NOW, a_budget, a_memory

VISION = Spending(frozenset({"vision"}), committed=Decimal(20))

FAMILY = BudgetsConfig().family


def state(usd, *, budget=None, until=NOW):
    return figures(budget or a_budget(), a_memory(usd, measured_until=until), VISION, NOW)


def test_an_account_has_what_its_tightest_budget_leaves(tmp_path):
    wide = a_budget(usd=Decimal(1000), name="vision-year")
    files.save_remaining(tmp_path, [state("70"), state("70", budget=wide)], FAMILY)
    assert price_file.read_remaining(tmp_path, time.time()) == {"vision": 10.0}


def test_a_budget_that_is_used_up_leaves_nothing(tmp_path):
    files.save_remaining(tmp_path, [state("99")], FAMILY)
    assert price_file.read_remaining(tmp_path, time.time()) == {"vision": 0.0}


@pytest.mark.parametrize(
    "item",
    [
        state("10", budget=a_budget((50, Action.WARN))),
        state("10", until=NOW - 86_400),
    ],
    ids=["only warns", "stale"],
)
def test_a_budget_without_a_limit_or_a_known_state_says_nothing(tmp_path, item):
    files.save_remaining(tmp_path, [state("10")], FAMILY)
    files.save_remaining(tmp_path, [item], FAMILY)
    assert not (tmp_path / files.REMAINING).exists()


def test_a_folder_that_can_not_be_written_is_an_error_with_its_path(tmp_path):
    with pytest.raises(StateError, match=r"remaining\.json"):
        files.save_remaining(tmp_path / "none", [replace(state("10"))], FAMILY)


def test_an_account_below_has_what_its_parents_budget_leaves(tmp_path):
    config = BudgetsConfig(families={"vision": frozenset({"vision", "vision-lab"})})
    files.save_remaining(tmp_path, [state("70")], config.family)
    remaining = price_file.read_remaining(tmp_path, time.time())
    assert remaining == {"vision": 10.0, "vision-lab": 10.0}


def test_an_old_file_says_nothing(tmp_path):
    """Passes may fail for hours, and the file stays."""
    files.save_remaining(tmp_path, [state("70")], FAMILY)
    os.utime(tmp_path / files.REMAINING, (time.time() - 901,) * 2)
    assert price_file.read_remaining(tmp_path, time.time()) == {}
