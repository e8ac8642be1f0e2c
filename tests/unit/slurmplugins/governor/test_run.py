"""A pass with its reads, its changes and its file."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from slurmplugins.config import burst as burst_config, governor as governor_config
from slurmplugins.config.governor import GovernorConfig
from slurmplugins.errors import ConfigError, SlurmRefused, SlurmUnreachable, StateError
from slurmplugins.govern import has_work
from slurmplugins.governor import spending_file
from slurmplugins.governor.plan import QueueSnapshot, plan
from slurmplugins.governor.run import cloud_problem, node_price, printable, run_pass
from slurmplugins.governor.spending import Burst, Refusal, Spending
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.engine import burst
from tests.fakes.governor import CONFIG, NOW, a_job, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class FakeQueue:
    """A queue that records its changes, and refuses or drops them if told so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.changes: list[tuple[str, tuple[str, ...]]] = []
        self.comments: list[tuple[int, str]] = []
        self._error = error

    def set_partitions(self, label: str, partitions: Sequence[str]) -> None:
        if self._error:
            raise self._error
        self.changes.append((label, tuple(partitions)))

    def comment(self, job: int, text: str) -> None:
        self.comments.append((job, text))


def carry_out(queue: FakeQueue, state: Path, given: QueueSnapshot) -> list[dict]:
    lines: list[str] = []
    given = replace(given, config=replace(given.config, folder=str(state)))
    run_pass(given, queue, queue, Log(lines.append, FakeClock()))  # type: ignore[arg-type]
    return [json.loads(line) for line in lines]


def test_a_pass_changes_comments_and_remembers(tmp_path: Path):
    queue = FakeQueue()
    events = carry_out(queue, tmp_path, snapshot(a_job()))
    assert queue.changes == [("7", ("rack", "cloud"))]
    assert queue.comments == [(7, "toolkit:burst age: may start in cloud; at most 1.50 USD")]
    assert [(item["event"], item["job"]) for item in events] == [("job_may_burst", 7)]
    memory = spending_file.load(tmp_path)
    assert memory.bursts == {7: Burst("vision", "rack", "cloud", Decimal("1.20"))}


def test_a_job_that_slurm_refuses_is_told_and_not_remembered_as_bursting(tmp_path: Path):
    queue = FakeQueue(SlurmRefused("Invalid account or account/partition combination"))
    events = carry_out(queue, tmp_path, snapshot(a_job()))
    assert [item["event"] for item in events] == ["job_partitions_not_changed"]
    memory = spending_file.load(tmp_path)
    assert memory.bursts == {}
    assert "Invalid account" in memory.refusals[7].message
    assert queue.comments == []
    carry_out(queue, tmp_path, snapshot(a_job(), spending=memory, now=NOW + 60))
    assert "Slurm refused the change" in queue.comments[0][1]


def test_a_change_without_an_answer_may_have_happened_and_counts(tmp_path: Path):
    carry_out(FakeQueue(SlurmUnreachable("timed out")), tmp_path, snapshot(a_job()))
    assert 7 in spending_file.load(tmp_path).bursts


def test_a_job_that_could_not_be_taken_back_still_counts(tmp_path: Path):
    waiting = a_job(partitions=("rack", "cloud"), held=True)
    memory = Spending(bursts={7: Burst("vision", "rack", "cloud", Decimal("1.20"))})
    carry_out(
        FakeQueue(SlurmUnreachable("timed out")), tmp_path, snapshot(waiting, spending=memory)
    )
    assert 7 in spending_file.load(tmp_path).bursts


def test_nothing_is_changed_if_the_intent_can_not_be_saved(tmp_path: Path):
    queue = FakeQueue()
    with pytest.raises(StateError):
        carry_out(queue, tmp_path / "absent", snapshot(a_job()))
    assert queue.changes == []


def test_the_file_is_read_as_it_was_written_and_a_damaged_one_is_refused(tmp_path: Path):
    made = plan(snapshot(a_job(), a_job(8, start_at=NOW + 60))).spending
    made = Spending(made.bursts, made.attempts, {3: Refusal(NOW, "no")}, made.expected, made.notes)
    spending_file.save(tmp_path, made)
    assert spending_file.load(tmp_path) == made
    for text in ("{", "[]", '{"bursts": {"7": {"account": "vision"}}}'):
        (tmp_path / spending_file.FILE).write_text(text)
        with pytest.raises(StateError, match="no job may burst"):
            spending_file.load(tmp_path)


def test_the_dearest_offering_of_the_policy_is_a_nodes_price():
    config = burst_config.parse(burst(partitions={"cheap": {"policy": "spot-only"}}))
    assert node_price(config, "spot", "gpu-001") == "1.006"
    assert node_price(config, "cheap", "gpu-001") == "0.4100"
    assert node_price(config, "spot", "cpu-1") == "0.1"
    assert node_price(config, "cheap", "cpu-1") == ""  # nothing could be launched
    assert node_price(config, "rack", "rack-01") == "0"


def test_a_price_of_zero_is_not_known_and_a_capacity_block_costs_nothing_more():
    document = burst()
    offerings = document["pools"]["gpu"]["offerings"]  # type: ignore[index]
    offerings[0]["price"] = "0"
    assert node_price(burst_config.parse(document), "spot", "gpu-001") == ""
    block = {**offerings[2], "price": "0", "reservation": "cr-1", "block": True}
    document["pools"]["gpu"]["offerings"] = [block]  # type: ignore[index]
    assert node_price(burst_config.parse(document), "spot", "gpu-001") == "0"


def test_an_array_that_slurm_refused_in_part_still_counts(tmp_path: Path):
    array = replace(a_job(9, tasks=3, array=9), label="9_[1-3]")
    carry_out(FakeQueue(SlurmRefused("9_1: no longer pending")), tmp_path, snapshot(array))
    memory = spending_file.load(tmp_path)
    assert 9 in memory.bursts
    changed = replace(array, partitions=("rack", "cloud"))
    assert plan(snapshot(changed, spending=memory)).decisions[0].bursts
    assert not plan(snapshot(array, spending=memory)).decisions[0].bursts


def test_a_slurmctld_that_does_not_answer_is_asked_once(tmp_path: Path):
    queue = FakeQueue(SlurmUnreachable("timed out"))
    jobs = (a_job(1), a_job(2), a_job(3, partitions=("rack", "cloud"), held=True))
    memory = Spending(bursts={3: Burst("vision", "rack", "cloud", Decimal("1.20"))})
    events = carry_out(queue, tmp_path, snapshot(*jobs, spending=memory))
    assert len(events) == 1
    saved = spending_file.load(tmp_path)
    assert set(saved.bursts) == {1, 2, 3}
    assert saved.refusals == {}


def test_nothing_is_launched_while_reconcile_is_blocked_away_or_the_pool_is_protected(tmp_path):
    config = burst_config.parse(burst())
    assert "has not looked" in cloud_problem(config, "spot", tmp_path, NOW)
    LastPass(NOW - 20).save(tmp_path)
    assert cloud_problem(config, "spot", tmp_path, NOW) == ""
    LastPass(NOW - 20, "nothing is done: EC2 is away").save(tmp_path)
    assert "EC2 is away" in cloud_problem(config, "spot", tmp_path, NOW)
    LastPass(NOW - 20).save(tmp_path)
    shut = {"failures": 5, "since": 1.0, "retry_at": 9.0, "probes": 0, "last": []}
    record = {"pools": {"gpu": shut, "cpu": shut}, "counted": {}}
    (tmp_path / "protection.json").write_text(json.dumps(record))
    assert "do not come up" in cloud_problem(config, "spot", tmp_path, NOW)
    del record["pools"]["cpu"]
    (tmp_path / "protection.json").write_text(json.dumps(record))
    assert cloud_problem(config, "spot", tmp_path, NOW) == ""


def test_a_configuration_without_rules_has_none_and_a_damaged_one_is_refused():
    assert governor_config.parse(burst()).rules == {}
    part = governor_config.to_json(CONFIG)
    assert governor_config.parse(burst(governor=part)) == CONFIG
    part["racks"]["rack"]["accounts"]["vision"] = "NaN"
    with pytest.raises(ConfigError, match="governor"):
        governor_config.parse(burst(governor=part))


def test_without_rules_only_jobs_of_those_that_were_are_work(tmp_path: Path):
    assert has_work(CONFIG)
    assert not has_work(GovernorConfig())
    gone = GovernorConfig(folder=str(tmp_path))
    assert not has_work(gone)
    burst_job = Burst("vision", "rack", "cloud", Decimal("1.20"))
    spending_file.save(tmp_path, Spending(bursts={7: burst_job}))
    assert has_work(gone)


def test_the_plan_is_printed_with_its_facts():
    given = snapshot(a_job(), a_job(8, account="language"))
    value = json.loads(json.dumps(printable(plan(given), given)))
    assert [(item["job"], item["bursts"]) for item in value["decisions"]] == [
        (7, True), (8, False)
    ]  # fmt: skip
    assert value["accounts"] == [
        {
            "account": "vision",
            "usd_spent": "0",
            "usd_committed": "1.50",
            "usd_per_month": {"rack": "100"},
        }
    ]
    assert {item["name"] for item in value["partitions"]} == {"rack", "cloud"}
