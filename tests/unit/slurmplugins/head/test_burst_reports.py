"""The burst governor's decisions in the head's report, from one Slurm's own records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmplugins.config import governor
from slurmplugins.head.burst_reports import burst_reports
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.slurm.queue import Queue
from tests.fakes.engine import Bench, burst
from tests.fakes.runner import FakeRunner

CAPTURED = Path(__file__).parents[4] / "tests/golden/slurm/24.11"
RULE = {
    "cloud": "cloud",
    "after": 60.0,
    "soon": 900.0,
    "qos": {},
    "accounts": {"vision": "100"},
    "deadline": True,
    "data": {"at": "s3", "mbit_per_second": 1000.0, "usd_per_gb": "0"},
}


@pytest.fixture
def runner() -> FakeRunner:
    """A slurmctld whose partition `spot` is the racks."""
    runner = FakeRunner(strict=True)
    partitions = json.loads((CAPTURED / "scontrol-partitions.json").read_text())
    nodes = json.loads((CAPTURED / "scontrol-nodes.json").read_text())
    spot = next(item for item in partitions["partitions"] if item["name"] == "spot")
    partitions["partitions"].append({**spot, "name": "cloud"})
    for node in nodes["nodes"]:
        node["partitions"].append("cloud")
    jobs = (CAPTURED / "scontrol-jobs.json").read_text()
    runner.answer("/usr/bin/scontrol", "show", "jobs", stdout=jobs)
    runner.answer("/usr/bin/scontrol", "show", "partitions", stdout=json.dumps(partitions))
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=json.dumps(nodes))
    return runner


def with_rule(folder: Path) -> Path:
    part = {"racks": {"spot": RULE}, "boot": 180.0, "tail": 90.0, "folder": str(folder)}
    path = folder / "burst.json"
    path.write_text(json.dumps(burst(**{governor.KEY: part})))
    return path


def test_a_job_has_its_decision_with_its_words(tmp_path: Path, runner: FakeRunner):
    bench = Bench(tmp_path)
    LastPass(bench.clock.now()).save(tmp_path)
    queue = Queue(runner, "/usr/bin")
    (held,) = burst_reports(bench.engine, queue, 9, with_rule(tmp_path))
    assert (held.label, held.bursts, held.reason) == ("9", False, "held")
    (array,) = burst_reports(bench.engine, queue, 7, with_rule(tmp_path))
    assert array.label == "7_[1-3]"
    assert array.text.startswith("stays: it waits for its begin time")
    assert burst_reports(bench.engine, queue, 1, with_rule(tmp_path)) == ()  # it runs


def test_a_cluster_without_rules_asks_slurm_nothing(tmp_path: Path):
    path = tmp_path / "burst.json"
    path.write_text(json.dumps(burst()))
    runner = FakeRunner(strict=True)
    assert burst_reports(Bench(tmp_path).engine, Queue(runner, "/usr/bin"), 9, path) == ()
    assert runner.commands == []
