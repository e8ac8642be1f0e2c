"""`toolkit quote` and `recommend` on the local cloud: EC2's prices, and the records."""

from __future__ import annotations

import json
import time

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD, Deployment
from tests.contract.deploy.test_records import HOUR, RecordsHead, toolkit
from tests.fakes.slurmdbd import Row

pytestmark = LEAVES_A_CLOUD


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "job.sbatch"
    path.write_text("#!/bin/bash\n#SBATCH --job-name=digits --account=vision\npython train.py\n")
    return str(path)


@pytest.fixture
def head(shared_cluster, tmp_path):
    """The cluster's head; one test alone writes records."""
    folder = tmp_path / "head"
    folder.mkdir()
    return RecordsHead(shared_cluster, folder)


def quoted(config, capsys, *words):
    capsys.readouterr()
    assert toolkit(config, "quote", "--json", *words) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_a_quote_has_ec2s_prices_and_what_the_records_know(head, script, capsys):
    empty = quoted(head.config, capsys, "--time=60", script)
    assert empty["history"]["run_seconds"] is None
    assert [offer["lifecycle"] for offer in empty["offers"]] == ["spot"] * 2 + ["on-demand"] * 2
    assert empty["offers"][0]["price_source"] == "history"
    assert float(empty["offers"][0]["usd_per_hour"]) < float(empty["offers"][2]["usd_per_hour"])

    now = int(time.time())
    head.add_life("i-1", now - 3 * HOUR, now - 2 * HOUR)
    row = Row(1, 11, now - 3 * HOUR + 100, now - 2 * HOUR - 100, state="COMPLETED")
    head.accounting.rows = {1: row}
    head.write()
    known = quoted(head.config, capsys, "--time=600", script)
    assert known["history"]["run_seconds"] == {"median": 3400.0, "high": 3400.0, "count": 1}
    assert known["history"]["boot_seconds"]["median"] == 95
    usual = float(known["offers"][0]["usd_per_hour"]) * 3400 / 3600
    assert float(known["offers"][0]["usd_usual"]) == pytest.approx(usual, abs=0.0001)

    capsys.readouterr()
    assert toolkit(head.config, "quote", "--time=60", script) == 0
    assert "earlier jobs of this name: 56 m (median of 1)" in capsys.readouterr().out


def test_a_quote_without_the_heads_figures_says_that_the_budgets_are_not_known(
    head, script, capsys, tmp_path
):
    assert quoted(head.config, capsys, "--time=60", script)["budgets"] is None
    path = tmp_path / "cluster.yaml"
    budgets = "\nbudgets: {vision: {account: vision, usd: 9}}\n"
    path.write_text(head.config.path.read_text() + budgets)
    config = Deployment(path, head.config.config, head.config.actor)
    unknown = {"effects": None, "unknown": "the head gives no figures"}
    assert quoted(config, capsys, "--time=60", script)["budgets"] == unknown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--partition=spto",), "invalid partition specified: spto"),
        (("--gpu-type=h100",), "unrecognized option --gpu-type"),
        (("--time=soon",), "invalid time limit 'soon'"),
        (("--gpus=64",), "requested node configuration is not available"),
    ],
    ids=str,
)
def test_what_sbatch_would_refuse_is_refused_in_its_words(head, script, capsys, words, message):
    assert toolkit(head.config, "quote", *words, script) == 2
    assert message in capsys.readouterr().err


def test_a_recommendation_by_size_is_recorded_unless_it_is_a_dry_run(
    head, script, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOOLKIT_PREDICTIONS", str(tmp_path / "predictions"))
    record = tmp_path / "predictions" / "demo.jsonl"
    size = ("--parameters", "500M", script)
    assert toolkit(head.config, "recommend", "--dry-run", *size) == 0
    assert not record.exists()
    assert toolkit(head.config, "recommend", *size) == 0
    told = capsys.readouterr().out
    assert "recommended: 1 x A10G on g5.xlarge" in told
    assert "0.5 billion parameters x 18 bytes (mixed, adamw)" in told
    assert json.loads(record.read_text())["job_name"] == "digits"


def test_without_a_run_or_a_size_there_is_nothing_to_recommend(head, script, capsys):
    assert toolkit(head.config, "recommend", script) == 2
    assert "no earlier run" in capsys.readouterr().err
