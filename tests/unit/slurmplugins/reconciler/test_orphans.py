"""Instances without a node, and instances that should be terminated already.

reconcile terminates some of them. Of others, people get a warning.
"""

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


def instance(id_: str = "i-1", **more: Any) -> Instance:
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


def a_snapshot(
    *instances: Instance, nodes: dict[str, Node] | None = None, **journal: Any
) -> Snapshot:
    known = {name: Node(name, frozenset({"IDLE"})) for name in CONFIG.pool_by_node}
    return Snapshot(
        config=CONFIG,
        instances=instances,
        nodes=known if nodes is None else nodes,
        journal=JournalView(**journal),
        now=NOW,
    )


def ended(given: Snapshot) -> list[Terminate]:
    return list(orphans.terminations(given))


def warnings_of(given: Snapshot) -> list[str]:
    return list(orphans.warnings(given))


LOST = instance("i-9", node=NOBODYS)
ORPHANED = Terminate(LOST, EndCause.ORPHAN, "there is no node fpga-1")


# Terminations


def test_an_old_instance_of_a_node_that_nobody_knows_ends():
    assert ended(a_snapshot(LOST)) == [ORPHANED]


def test_an_old_instance_that_names_no_node_ends():
    lost = instance(node=None)
    assert ended(a_snapshot(lost)) == [Terminate(lost, EndCause.ORPHAN, "its tags name no node")]


def test_an_instance_of_a_node_that_slurm_alone_knows_stays():
    nodes = {NOBODYS: Node(NOBODYS, frozenset({"IDLE"}))}
    assert ended(a_snapshot(instance(node=NOBODYS, pool=""), nodes=nodes)) == []


@pytest.mark.parametrize(("more", "ends"), [(0, False), (1, True)])
def test_an_instance_may_be_claimed_until_it_is_older_than_the_grace(more: int, ends: bool):
    lost = instance(node=NOBODYS, launched_at=NOW - CONFIG.orphan_grace - more)
    assert bool(ended(a_snapshot(lost))) is ends


@pytest.mark.parametrize(
    "other",
    [
        instance(role="head", node=NOBODYS),
        instance(state=S.SHUTTING_DOWN, node=NOBODYS),
        instance(node=None, attempt="under way"),
        instance(launched_at=NOW, node=NOBODYS),
    ],
)
def test_an_instance_that_is_left_alone_keeps_no_other_from_its_end(other: Instance):
    assert ended(a_snapshot(other, LOST, awaiting_reply=frozenset({"under way"}))) == [ORPHANED]


def test_a_termination_that_did_not_happen_is_repeated_with_its_cause():
    young = instance(launched_at=NOW)
    why = "its termination was decided before"
    given = a_snapshot(young, termination_causes={"i-1": EndCause.INTERRUPTION})
    assert ended(given) == [Terminate(young, EndCause.INTERRUPTION, why)]


def test_an_instance_of_another_pool_than_its_node_ends_unless_slurm_uses_it():
    wrong = instance(pool="cpu")
    why = "its tags say pool 'cpu', but node gpu-001 is not in it"
    assert ended(a_snapshot(wrong)) == [Terminate(wrong, EndCause.ORPHAN, why)]
    used = {GPU: Node(GPU, frozenset({"ALLOCATED"}), instance_id="i-1")}
    assert ended(a_snapshot(wrong, nodes=used)) == []
    assert ended(a_snapshot(wrong, claimed_nodes=frozenset({GPU}))) == []


@pytest.mark.parametrize(
    "node",
    [
        Node(GPU, frozenset({"IDLE", "POWERED_DOWN"}), instance_id="i-1"),
        Node(GPU, frozenset({"ALLOCATED"}), instance_id="i-2"),
    ],
)
def test_slurm_uses_no_instance_of_a_node_that_is_off_or_has_another(node: Node):
    assert orphans.has_wrong_tags(a_snapshot(nodes={GPU: node}), instance(pool="cpu"))


def test_no_instance_is_of_the_wrong_pool_that_is_no_nodes_or_whose_node_has_no_pool():
    given = a_snapshot()
    others = (
        instance(node=None, pool="cpu"),
        instance(role="head", pool="cpu"),
        instance(node=NOBODYS, pool="cpu"),
        instance(),
    )
    assert not any(orphans.has_wrong_tags(given, item) for item in others)


@pytest.mark.parametrize(
    "nodes",
    [
        {GPU: Node(GPU, ODD), "": Node("", ODD)},
        {GPU: Node(GPU, ODD)},
        {"": Node("", ODD)},  # A record with an unreadable name may be this node's.
    ],
)
def test_an_instance_whose_nodes_record_is_invalid_is_not_ended(nodes: dict[str, Node]):
    wrong = instance(pool="cpu")
    assert ended(a_snapshot(wrong, nodes=nodes)) == []


def test_an_invalid_record_without_a_name_protects_no_node_that_has_a_record():
    nodes = {GPU: Node(GPU, frozenset({"IDLE"})), "": Node("", ODD)}
    wrong = instance(pool="cpu")
    assert [item.instance for item in ended(a_snapshot(wrong, nodes=nodes))] == [wrong]


def test_an_invalid_record_protects_no_instance_without_a_node():
    lost = instance(node=None)
    nodes = {"": Node("", ODD, instance_id="i-1")}
    assert [item.instance for item in ended(a_snapshot(lost, nodes=nodes))] == [lost]


# Warnings to people


def test_nothing_is_logged_of_instances_that_are_as_they_should_be():
    assert warnings_of(a_snapshot(instance(), instance("i-2", role="head", node=None))) == []
    assert warnings_of(a_snapshot(instance("i-3", role="builder", node=None))) == []
    assert warnings_of(a_snapshot(instance("i-4", role="login", node=None))) == []


def test_an_instance_in_a_state_that_nobody_knows_is_told():
    odd = {"state": S.UNCLEAR, "unclear": "hibernating"}
    given = a_snapshot(instance("i-1", **odd), instance("i-2", node=None, **odd))
    said = "is in the unknown state 'hibernating'"
    assert warnings_of(given) == [f"i-1 (node gpu-001) {said}", f"i-2 (no node) {said}"]


@pytest.mark.parametrize("state", [S.TERMINATED, S.STOPPED])
def test_what_does_not_live_is_no_matter_and_hides_nothing(state: InstanceState):
    given = a_snapshot(instance("i-1", role="web", state=state), instance("i-2", role="web"))
    said = "i-2 has the cluster's tag and no known role"
    assert warnings_of(given) == [said]


def test_an_instance_of_a_node_that_slurm_lacks_or_can_not_tell_is_told():
    assert warnings_of(a_snapshot(instance(), nodes={})) == [
        "i-1 is node gpu-001, which Slurm does not list"
    ]
    assert warnings_of(a_snapshot(instance(), nodes={GPU: Node(GPU, ODD)})) == [
        "i-1 is node gpu-001, whose record in Slurm can't be read"
    ]


def test_an_instance_that_slurm_uses_against_its_tags_is_told_and_one_with_right_tags_is_not():
    used = {GPU: Node(GPU, frozenset({"ALLOCATED"}), instance_id="i-1")}
    said = "i-1 works as node gpu-001, though its tags say pool 'cpu'"
    assert warnings_of(a_snapshot(instance(pool="cpu"), nodes=used)) == [said]
    assert warnings_of(a_snapshot(instance(), nodes=used)) == []
    assert warnings_of(a_snapshot(instance(pool="cpu"))) == []


@pytest.mark.parametrize(
    ("count", "more"),
    [(1, ""), (MOST_NAMED, ""), (MOST_NAMED + 1, " and 1 more"), (MOST_NAMED + 9, " and 9 more")],
)
def test_so_many_instances_that_nobody_understands_are_named_and_the_rest_counted(
    count: int, more: str
):
    ids = [f"i-{number:02}" for number in range(count)]
    gone = instance("i-gone", state=S.TERMINATED)
    strange = frozenset((*ids, "i-gone"))
    given = a_snapshot(*map(instance, ids), gone, instance("i-fine"), unreadable_ids=strange)
    named = f"{', '.join(ids[:MOST_NAMED])}{more}: named by a journal line that can't be read: "
    said = f"{named}no job gets them, and they are terminated only while their node is powered down"
    assert warnings_of(given) == [said]
