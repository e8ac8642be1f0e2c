"""The accounts that budgets keep from partitions, as people's commands read them."""

import json

import pytest

from slurmplugins.budgets import files
from slurmplugins.config import budgets as budgets_config
from slurmplugins.errors import StateError
from slurmplugins.head.budget_reports import denied_accounts, held_jobs
from slurmplugins.head.report import HeadReport, from_json, to_json
from tests.fakes.budgets import a_config, a_memory


@pytest.fixture
def config(tmp_path):
    part = budgets_config.to_json(a_config(folder=str(tmp_path)))
    path = tmp_path / "burst.json"
    path.write_text(json.dumps({"budgets": part}))
    return path


def test_the_last_pass_says_which_accounts_may_use_spot_alone(tmp_path, config):
    assert denied_accounts(config) == {}
    denied = {"batch": frozenset({"vision", "lab"})}
    files.save(tmp_path, a_memory(denied=denied, held_jobs=frozenset({9, 8})))
    assert denied_accounts(config) == {"batch": ("lab", "vision")}
    report = HeadReport(1.0, denied=denied_accounts(config), budget_holds=held_jobs(config))
    assert report.budget_holds == (8, 9)
    assert from_json(json.loads(json.dumps(to_json(report)))) == report


def test_a_damaged_memory_is_told(tmp_path, config):
    (tmp_path / files.FILE).write_text("{")
    with pytest.raises(StateError):
        denied_accounts(config)


def test_a_head_without_budgets_reads_no_memory(tmp_path):
    path = tmp_path / "burst.json"
    path.write_text("{}")
    assert denied_accounts(path) == {}
