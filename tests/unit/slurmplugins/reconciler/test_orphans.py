"""Instances that are no node's, or should be over: which end, and which a person hears of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmplugins.config import burst as burst_config
from slurmplugins.errors import MOST_NAMED
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import EndCause, Instance, InstanceState, Lifecycle
from slurmplugins.model.node import UNREADABLE, Node
from slurmplugins.reconciler import orphans
from slurmplugins.reconciler.snapshot import Snapshot
from slurmplugins.state.journal_view import JournalView
from tests.fakes.engine import burst

NOW = 1_795_000_000.0
CONFIG = burst_config.parse(burst())
GPU = hostlist.parse("gpu-001")
NOBODYS = hostlist.parse("fpga-1")
S = InstanceState
ODD = frozenset({UNREADABLE})


def machine(id_: str = "i-1", **more: Any) -> Instance:
    base = Instance(
        id=id_,
        state=S.RUNNING,
        role="compute",
        node=GPU,
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone="us-east-1a",
        lifecycle=Lifecycle.SPOT,
        address="10.42.1.11",
        price="0.4",
        launched_at=NOW - 600,
    )
    return replace(base, **more)


def world(*machines: Instance, nodes: dict[str, Node] | None = None, **journal: Any) -> Snapshot:
    known = {name: Node(name, frozenset({"IDLE"})) for name in CONFIG.pool_by_node}
    return Snapshot(
        config=CONFIG,
        instances=machines,
        nodes=known if nodes is None else nodes,
        journal=JournalView(**journal),
        now=NOW,
    )


def ended(given: Snapshot) -> list[Terminate]:
    return list(orphans.terminations(given))


def remarks(given: Snapshot) -> list[str]:
    return list(orphans.warnings(given))


LOST = machine("i-9", node=NOBODYS)
ORPHANED = Terminate(LOST, EndCause.ORPHAN, "there is no node fpga-1")


# Which end


def test_an_old_instance_of_a_node_that_nobody_knows_ends():
    assert ended(world(LOST)) == [ORPHANED]


def test_an_old_instance_that_names_no_node_ends():
    lost = machine(node=None)
    assert ended(world(lost)) == [Terminate(lost, EndCause.ORPHAN, "there is no node for it")]


def test_an_instance_of_a_node_that_slurm_alone_knows_stays():
    nodes = {NOBODYS: Node(NOBODYS, frozenset({"IDLE"}))}
    assert ended(world(machine(node=NOBODYS, pool=""), nodes=nodes)) == []


@pytest.mark.parametrize(("more", "ends"), [(0, False), (1, True)])
def test_an_instance_may_be_claimed_until_it_is_older_than_the_grace(more: int, ends: bool):
    lost = machine(node=NOBODYS, launched_at=NOW - CONFIG.orphan_grace - more)
    assert bool(ended(world(lost))) is ends


@pytest.mark.parametrize(
    "other",
    [
        machine(role="head", node=NOBODYS),
        machine(state=S.SHUTTING_DOWN, node=NOBODYS),
        machine(node=None, attempt="under way"),
        machine(launched_at=NOW, node=NOBODYS),
    ],
)
def test_an_instance_that_is_left_alone_keeps_no_other_from_its_end(other: Instance):
    assert ended(world(other, LOST, asked=frozenset({"under way"}))) == [ORPHANED]


def test_an_end_that_was_decided_and_did_not_come_about_is_repeated_with_its_cause():
    young = machine(launched_at=NOW)
    why = "its end was decided before"
    given = world(young, ended={"i-1": EndCause.INTERRUPTION})
    assert ended(given) == [Terminate(young, EndCause.INTERRUPTION, why)]


def test_an_instance_of_another_pool_than_its_node_ends_unless_slurm_uses_it():
    wrong = machine(pool="cpu")
    why = "its tags say pool 'cpu', which gpu-001 is not in"
    assert ended(world(wrong)) == [Terminate(wrong, EndCause.ORPHAN, why)]
    used = {GPU: Node(GPU, frozenset({"ALLOCATED"}), instance_id="i-1")}
    assert ended(world(wrong, nodes=used)) == []
    assert ended(world(wrong, busy=frozenset({GPU}))) == []


@pytest.mark.parametrize(
    "node",
    [
        Node(GPU, frozenset({"IDLE", "POWERED_DOWN"}), instance_id="i-1"),
        Node(GPU, frozenset({"ALLOCATED"}), instance_id="i-2"),
    ],
)
def test_slurm_uses_no_instance_of_a_node_that_is_off_or_has_another(node: Node):
    assert orphans.has_wrong_tags(world(nodes={GPU: node}), machine(pool="cpu"))


def test_no_instance_is_of_the_wrong_pool_that_is_no_nodes_or_whose_node_has_no_pool():
    given = world()
    others = (
        machine(node=None, pool="cpu"),
        machine(role="head", pool="cpu"),
        machine(node=NOBODYS, pool="cpu"),
        machine(),
    )
    assert not any(orphans.has_wrong_tags(given, item) for item in others)


@pytest.mark.parametrize(
    "nodes",
    [
        {GPU: Node(GPU, ODD), "": Node("", ODD)},
        {GPU: Node(GPU, ODD)},
        {"": Node("", ODD)},  # a record whose name can't be read may be this node's
    ],
)
def test_an_instance_whose_nodes_record_is_odd_is_not_ended(nodes: dict[str, Node]):
    wrong = machine(pool="cpu")
    assert ended(world(wrong, nodes=nodes)) == []


def test_an_odd_record_without_a_name_protects_no_node_that_has_a_record():
    nodes = {GPU: Node(GPU, frozenset({"IDLE"})), "": Node("", ODD)}
    wrong = machine(pool="cpu")
    assert [item.instance for item in ended(world(wrong, nodes=nodes))] == [wrong]


def test_an_odd_record_protects_no_instance_without_a_node():
    lost = machine(node=None)
    nodes = {"": Node("", ODD, instance_id="i-1")}
    assert [item.instance for item in ended(world(lost, nodes=nodes))] == [lost]


# Which a person hears of


def test_nothing_is_said_of_instances_that_are_as_they_should_be():
    assert remarks(world(machine(), machine("i-2", role="head", node=None))) == []
    assert remarks(world(machine("i-3", role="builder", node=None))) == []


def test_an_instance_in_a_state_that_nobody_knows_is_told():
    odd = {"state": S.UNCLEAR, "unclear": "hibernating"}
    given = world(machine("i-1", **odd), machine("i-2", node=None, **odd))
    said = "in a state unknown here, 'hibernating': left alone"
    assert remarks(given) == [f"i-1 is gpu-001, {said}", f"i-2 is no node, {said}"]


@pytest.mark.parametrize("state", [S.TERMINATED, S.STOPPED])
def test_what_does_not_live_is_no_matter_and_hides_nothing(state: InstanceState):
    given = world(machine("i-1", role="web", state=state), machine("i-2", role="web"))
    said = "i-2 has the cluster's tag and no known role: left alone"
    assert remarks(given) == [said]


def test_an_instance_of_a_node_that_slurm_lacks_or_can_not_tell_is_told():
    assert remarks(world(machine(), nodes={})) == [
        "i-1 is gpu-001, which Slurm does not have: left alone"
    ]
    assert remarks(world(machine(), nodes={GPU: Node(GPU, ODD)})) == [
        "i-1 is gpu-001, whose record in Slurm is odd: left alone"
    ]


def test_an_instance_that_slurm_uses_against_its_tags_is_told_and_one_with_right_tags_is_not():
    used = {GPU: Node(GPU, frozenset({"ALLOCATED"}), instance_id="i-1")}
    said = "i-1 works as gpu-001, though its tags say pool 'cpu'"
    assert remarks(world(machine(pool="cpu"), nodes=used)) == [said]
    assert remarks(world(machine(), nodes=used)) == []
    assert remarks(world(machine(pool="cpu"))) == []


@pytest.mark.parametrize(
    ("count", "more"),
    [(1, ""), (MOST_NAMED, ""), (MOST_NAMED + 1, " and 1 more"), (MOST_NAMED + 9, " and 9 more")],
)
def test_so_many_instances_that_nobody_understands_are_named_and_the_rest_counted(
    count: int, more: str
):
    ids = [f"i-{number:02}" for number in range(count)]
    gone = machine("i-gone", state=S.TERMINATED)
    strange = frozenset((*ids, "i-gone"))
    given = world(*map(machine, ids), gone, machine("i-fine"), strange=strange)
    named = f"{', '.join(ids[:MOST_NAMED])}{more}: named by a line of the journal that can't be "
    said = f"{named}understood: given to no job, ended only while their node is off"
    assert remarks(given) == [said]
