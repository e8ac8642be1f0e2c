"""Decisions without input or output, one law each.

They concern plans, doubts of EC2's list, boots, protected mode and health.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmplugins.config import burst as burst_config
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Drain, Terminate
from slurmplugins.model.instance import (
    IMPAIRED_SECONDS,
    Assignment,
    BootFailure,
    BootResults,
    EndCause,
    Instance,
    InstanceHealth,
    InstanceState,
    Lifecycle,
)
from slurmplugins.model.launch import JobRequest, ResumePlan
from slurmplugins.model.node import Node
from slurmplugins.power_save import circuit_breaker, planner
from slurmplugins.power_save.circuit_breaker import MAX_SHOWN, Record
from slurmplugins.power_save.suspend import plan_terminations
from slurmplugins.reconciler import boot_failures, rules, snapshot
from slurmplugins.state.journal import Journal
from slurmplugins.state.journal_view import JournalView
from tests.fakes.clock import FakeClock
from tests.fakes.engine import burst

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_795_000_000.0
CONFIG = burst_config.parse(burst())
G = hostlist.expand("gpu-[001-004]")
S = InstanceState


def instance(
    id_: str = "i-1", state: InstanceState = S.RUNNING, age: float = 600.0, end_code: str = ""
) -> Instance:
    return Instance(
        id=id_,
        state=state,
        role="compute",
        node=G[0],
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone="us-east-1a",
        lifecycle=Lifecycle.SPOT,
        address="10.42.1.11",
        price="0.4",
        launched_at=NOW - age,
        end_code=end_code,
    )


def node(flags: str, instance_id: str = "i-1", name: str = G[0]) -> Node:
    return Node(name, frozenset(flags.split("+")), "", instance_id, "10.42.1.11")


def a_snapshot(
    *instances: Instance,
    nodes: tuple[Node, ...] = (),
    journal: JournalView | None = None,
    health: tuple[InstanceHealth, ...] = (),
    known_instances: frozenset[str] = frozenset(),
) -> snapshot.Snapshot:
    off = {name: node("IDLE+POWERED_DOWN", "", name) for name in CONFIG.pool_by_node}
    return snapshot.Snapshot(
        config=CONFIG,
        instances=instances,
        nodes={**off, **{item.name: item for item in nodes}},
        journal=journal or JournalView(),
        now=NOW,
        health={item.id: item for item in health},
        known_instances=known_instances,
    )


# Plans of resume and suspend


def test_a_job_whose_adopted_node_is_up_already_keeps_what_it_waits_for():
    """Let a node register before resume has adopted its instance.

    slurmd was faster than resume.
    """
    ask = JobRequest(7, G[:2])
    plan = ResumePlan(adoptions=tuple(Assignment(item, f"i-{item}", "", "") for item in ask.nodes))
    states = {G[0]: node("ALLOCATED", name=G[0]), G[1]: node("ALLOCATED+POWERING_UP", name=G[1])}
    assert planner.still_awaited([ask], plan, states) == ([ask], [])


@pytest.mark.parametrize("state", S)
def test_suspend_terminates_each_live_instance_once(state: InstanceState):
    """Suspend a node with an instance in each state.

    The cause of a second termination would also count for the first one.
    """
    found = plan_terminations(
        [G[0]], [instance(state=state)], {G[0]: node("IDLE+POWERING_DOWN")}, EndCause.SUSPEND
    )
    assert len(found) == (0 if state in {S.SHUTTING_DOWN, S.TERMINATED} else 1)


def test_an_instance_that_was_given_to_another_node_is_not_marked_terminating_under_its_old_name(
    tmp_path: Path,
):
    journal = Journal(tmp_path, FakeClock())
    journal.record_launched("a1", [Assignment(G[0], "i-1", "", "")])
    journal.record_launched("a1", [Assignment(G[1], "i-1", "", "")])
    assert journal.mark_terminating_if_idle([("i-1", G[0])], EndCause.SUSPEND) == frozenset()
    assert journal.view().termination_causes == {}
    assert journal.mark_terminating_if_idle([("i-1", G[1])], EndCause.SUSPEND) == {"i-1"}


# Doubts of EC2's list


def test_instances_that_the_toolkit_terminated_are_not_missed_in_ec2s_list():
    ids = [f"i-{number}" for number in range(6)]
    ended = JournalView(termination_causes=dict.fromkeys(ids, EndCause.SUSPEND))
    assert snapshot.cloud_doubt(a_snapshot(known_instances=frozenset(ids), journal=ended)) == ""
    assert snapshot.cloud_doubt(a_snapshot(known_instances=frozenset(ids))) != ""


# Failed boots


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        ("Client.UserInitiatedShutdown", False),
        ("Server.SpotInstanceTermination", False),
        ("Client.InstanceInitiatedShutdown", True),
        ("", True),
    ],
)
def test_an_instance_that_a_person_or_ec2_took_says_nothing_of_its_image(code: str, failed: bool):
    gone = instance(state=S.TERMINATED, end_code=code)
    seen = boot_failures.observe(a_snapshot(gone, nodes=(node("ALLOCATED+POWERING_UP"),)))
    assert bool(seen.failures) is failed


def test_the_youngest_instance_that_came_up_speaks_for_its_pool_in_any_order():
    pair = (instance("i-1", age=600), replace(instance("i-2", age=100), node=G[1]))
    nodes = (node("ALLOCATED", "i-1"), node("ALLOCATED", "i-2", G[1]))
    expected = {"gpu": NOW - 100 + CONFIG.resume_timeout}
    assert boot_failures.observe(a_snapshot(*pair, nodes=nodes)).healthy_until == expected
    assert boot_failures.observe(a_snapshot(*reversed(pair), nodes=nodes)).healthy_until == expected


# Protected pools


def failure(number: int, launched_at: float) -> BootFailure:
    return BootFailure(f"i-{number}", G[0], "gpu", "it never registered", NOW, launched_at)


def test_a_pool_is_forgiven_only_what_went_wrong_before_its_success():
    failures = (failure(1, NOW - 900), failure(2, NOW - 100))
    record = circuit_breaker.record_boots(Record(), BootResults(failures), NOW)
    between = BootResults((), {"gpu": NOW - 500})
    assert "gpu" in circuit_breaker.record_boots(record, between, NOW).pools
    after = BootResults((), {"gpu": NOW})
    assert "gpu" not in circuit_breaker.record_boots(record, after, NOW).pools


def test_the_newest_failures_are_the_ones_remembered():
    record = Record()
    for number in range(MAX_SHOWN + 3):
        record = circuit_breaker.record_boots(record, BootResults((failure(number, NOW - 1),)), NOW)
    assert [item.instance_id for item in record.pools["gpu"].last] == [
        f"i-{number}" for number in range(3, MAX_SHOWN + 3)
    ]


# Health of instances


@pytest.mark.parametrize(("sick", "drained"), [("i-1", False), ("i-2", True)])
def test_of_two_instances_the_health_of_the_one_that_slurm_talks_to_counts(
    sick: str, drained: bool
):
    trouble = InstanceHealth(sick, NOW - IMPAIRED_SECONDS)
    found = rules.plan(
        a_snapshot(
            instance("i-1", age=900),
            instance("i-2"),
            nodes=(node("IDLE", "i-2"),),
            health=(trouble,),
        )
    )
    assert any(isinstance(item, Drain) for item in found.actions) is drained
    ended = [item.instance.id for item in found.actions if isinstance(item, Terminate)]
    assert ended == ["i-1"]
