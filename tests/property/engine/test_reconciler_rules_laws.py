"""Laws of reconcile's plan that hold for any snapshot."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings, strategies as st

from slurmplugins.config import burst as burst_config
from slurmplugins.model import hostlist
from slurmplugins.model.actions import MarkDown, PowerUp, Register, ReturnToService, Terminate
from slurmplugins.model.instance import (
    Assignment,
    EndCause,
    Instance,
    InstanceHealth,
    InstanceState,
    Lifecycle,
    ScheduledEvent,
)
from slurmplugins.model.node import Node
from slurmplugins.reconciler import rules, snapshot
from slurmplugins.state.journal_view import JournalView
from tests.fakes.engine import burst

CONFIG = burst_config.parse(burst("gpu-[001-004]"))
NODES = (*CONFIG.pool_by_node, hostlist.parse("onprem-1"), hostlist.parse("gone-1"))
IDS = tuple(f"i-{number}" for number in range(6))
NOW = 1_795_000_000.0
BASES = ("IDLE", "ALLOCATED", "MIXED", "DOWN")
FLAGS = (
    "DRAIN",
    "INVALID_REG",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "POWER_DOWN",
    "COMPLETING",
    "UNKNOWN",
    "REBOOT_ISSUED",
    "A_FLAG_OF_2031",
)
REASONS = (
    "",
    "bad disk",
    "Not responding",
    "ResumeTimeout reached",
    "toolkit: x",
    "Low RealMemory",
)
codes = st.sampled_from(["", "Server.SpotInstanceTermination", "Client.UserInitiatedShutdown", "x"])
instances = st.builds(
    Instance,
    id=st.sampled_from(IDS),
    state=st.sampled_from(InstanceState),
    role=st.sampled_from(["compute", "compute", "compute", "head", "builder", ""]),
    node=st.sampled_from((*NODES, None)),
    pool=st.sampled_from(["gpu", "gpu", "cpu", ""]),
    partition=st.just("spot"),
    attempt=st.just("a"),
    type=st.just("g5.xlarge"),
    zone=st.just("us-east-1a"),
    lifecycle=st.sampled_from(Lifecycle),
    address=st.sampled_from(["", "10.0.0.1"]),
    price=st.just("1"),
    launched_at=st.sampled_from([NOW - age for age in (0, 30, 100, 200, 1000)]),
    end_code=codes,
)
health = st.builds(
    InstanceHealth,
    id=st.sampled_from(IDS),
    impaired_since=st.sampled_from([None, 0.0, NOW]),
    events=st.sampled_from([(), (ScheduledEvent("system-reboot", NOW + 60),)]),
    notice=st.booleans(),
)


FLAG_SETS = tuple(
    frozenset(chosen)
    for size, repeats in enumerate((165, 15, 3, 1))  # all sizes are equally frequent
    for chosen in itertools.combinations(FLAGS, size)
    for _ in range(repeats)
)
# Draws take most of the time. So they are few, and their strategies are made once.
looks = st.sampled_from(tuple(itertools.product(BASES, REASONS, ("", *IDS))))
flag_sets = st.sampled_from(FLAG_SETS)
lists = st.lists(instances, max_size=6, unique_by=lambda item: item.id)
healths = st.lists(health, max_size=3)
unlisted = st.sampled_from((False,) * 9 + (True,))
subsets = st.sets(st.sampled_from(IDS), max_size=3)
some_nodes = st.sets(st.sampled_from(NODES[:4]))
two_nodes = st.sets(st.sampled_from(NODES), max_size=2)
ends = st.dictionaries(st.sampled_from(IDS), st.sampled_from(EndCause), max_size=2)
doubted = st.sampled_from([None, NOW - 1, NOW - 700])


def node(draw: st.DrawFn, name: str) -> Node:
    base, reason, instance = draw(looks)
    return Node(name, draw(flag_sets) | {base}, reason, instance)


@st.composite
def worlds(draw: st.DrawFn) -> snapshot.Snapshot:
    return snapshot.Snapshot(
        config=replace(CONFIG, static_nodes=frozenset(draw(some_nodes))),
        instances=tuple(draw(lists)),
        nodes={name: node(draw, name) for name in NODES[:-1] if not draw(unlisted)},
        journal=JournalView(
            claimed_nodes=frozenset(draw(two_nodes)),
            recent_launches={key: Assignment(NODES[0], key, "", "") for key in draw(subsets)},
            termination_causes=draw(ends),
            powered_down_ids=frozenset(draw(subsets)),
        ),
        now=NOW,
        without_instance_since=dict.fromkeys(draw(some_nodes), NOW - 100),
        health={item.id: item for item in draw(healths)},
        known_instances=frozenset(draw(subsets)),
        doubted_since=draw(doubted),
    )


def kept_off(found: Node) -> bool:
    """Tell whether a person seems to keep the node out of service."""
    slurms_own = ("Not responding", "ResumeTimeout")
    ours = found.reason.startswith(("toolkit:", *slurms_own) if found.down else "toolkit:")
    return (found.drain or found.down) and not ours and "INVALID_REG" not in found.flags


def is_end(action: object) -> bool:
    return isinstance(action, Terminate)


def a_node_that_a_person_holds_hears_nothing_from_us(world: snapshot.Snapshot, plan: snapshot.Plan):
    """Allow terminations, and the request to register.

    That request changes nothing that a person has set.
    """
    for action in plan.actions:
        if not isinstance(action, Terminate | Register):
            assert not kept_off(world.nodes[action.node]), action


def nodes_of_others_and_nodes_a_run_works_on_are_never_touched(
    world: snapshot.Snapshot, plan: snapshot.Plan
):
    for action in plan.actions:
        if isinstance(action, Terminate):
            continue
        assert action.node in CONFIG.pool_by_node
        assert action.node not in world.journal.claimed_nodes


def only_compute_machines_end_and_only_once(world: snapshot.Snapshot, plan: snapshot.Plan):
    ends = [item for item in plan.actions if isinstance(item, Terminate)]
    assert all(item.instance.role == "compute" for item in ends)
    assert not any(item.instance.state.terminated for item in ends)
    counts = Counter((item.instance.id, item.cause) for item in ends)
    assert all(count == 1 for count in counts.values()), counts


def a_machine_that_a_working_node_runs_on_is_never_ended(
    world: snapshot.Snapshot, plan: snapshot.Plan
):
    for action in plan.actions:
        if (
            not isinstance(action, Terminate)
            or action.instance.id in world.journal.termination_causes
        ):
            continue
        machine = action.instance
        found = world.nodes.get(machine.node or "")
        works = found is not None and found.up and not found.invalid
        assert not (works and found.instance_id == machine.id and machine.state.live), action


def that_slurm_let_go_of_a_machine_ends_it_under_no_job_and_no_slurmd(
    world: snapshot.Snapshot, plan: snapshot.Plan
):
    """Compare with the plan of a journal without powered-down instances.

    Any further termination is of a powered-down instance.
    """
    known = replace(world, journal=replace(world.journal, powered_down_ids=frozenset()))
    before = {item.instance.id for item in rules.plan(known).actions if is_end(item)}
    for action in plan.actions:
        if not isinstance(action, Terminate) or action.instance.id in before:
            continue
        found, machine = world.nodes[action.instance.node or ""], action.instance
        assert machine.id in world.journal.powered_down_ids, action
        assert found.powering_up, action
        assert found.not_responding, action
        others = [i for i in world.instances if i.node == machine.node and i.id != machine.id]
        assert not found.busy or any(item.state.live for item in others), action


def a_plan_with_a_note_does_nothing(world: snapshot.Snapshot, plan: snapshot.Plan):
    assert not (plan.blocked_by and plan.actions)


def power_is_never_asked_down_where_it_would_stick(world: snapshot.Snapshot, plan: snapshot.Plan):
    for action in plan.actions:
        if not isinstance(action, Terminate | ReturnToService | PowerUp | Register):
            assert not world.nodes[action.node].powering_off, action


def a_plan_says_each_thing_of_a_node_once(world: snapshot.Snapshot, plan: snapshot.Plan):
    said = [(type(item), item.node) for item in plan.actions if not isinstance(item, Terminate)]
    assert len(said) == len(set(said))


def jobs_are_sent_away_only_for_a_machine_that_is_lost_or_useless(
    world: snapshot.Snapshot, plan: snapshot.Plan
):
    for action in plan.actions:
        if isinstance(action, MarkDown):
            assert action.reason.split(" (")[0] in {
                "toolkit: interrupted",
                "toolkit: machine-ended",
                "toolkit: no-machine",
                "toolkit: impaired",
                "toolkit: never-booted",
                "toolkit: never-registered",
                "toolkit: invalid-registration",
            }


def no_job_is_sent_from_a_node_that_answers_without_evidence(
    world: snapshot.Snapshot, plan: snapshot.Plan
):
    """Accept two kinds of evidence.

    EC2 lists the instance as ended, or slurmd's own registration is invalid.
    """
    over = {item.id for item in world.instances if not item.state.live}
    for action in plan.actions:
        if isinstance(action, MarkDown):
            found = world.nodes[action.node]
            assert not found.up or found.instance_id in over or found.invalid, action


def the_plan_is_a_function_of_the_world(world: snapshot.Snapshot, plan: snapshot.Plan):
    assert rules.plan(world) == plan


LAWS = (
    a_node_that_a_person_holds_hears_nothing_from_us,
    nodes_of_others_and_nodes_a_run_works_on_are_never_touched,
    only_compute_machines_end_and_only_once,
    a_machine_that_a_working_node_runs_on_is_never_ended,
    that_slurm_let_go_of_a_machine_ends_it_under_no_job_and_no_slurmd,
    a_plan_with_a_note_does_nothing,
    power_is_never_asked_down_where_it_would_stick,
    a_plan_says_each_thing_of_a_node_once,
    jobs_are_sent_away_only_for_a_machine_that_is_lost_or_useless,
    no_job_is_sent_from_a_node_that_answers_without_evidence,
    the_plan_is_a_function_of_the_world,
)


@given(worlds())
@settings(max_examples=500)
def test_every_law_holds_of_the_plan_for_every_snapshot(world: snapshot.Snapshot):
    plan = rules.plan(world)
    for law in LAWS:
        law(world, plan)


@given(worlds(), st.data())
def test_a_slurm_that_lists_half_of_its_nodes_is_not_believed(
    world: snapshot.Snapshot, data: st.DataObject
):
    """Leave out any nodes, but more than half of them."""
    ours = [name for name in world.nodes if name in CONFIG.pool_by_node]
    fewest = (len(CONFIG.pool_by_node) - 1) // 2
    listed = data.draw(st.sets(st.sampled_from(ours), max_size=fewest)) if ours else set()
    others = {name for name in world.nodes if name not in CONFIG.pool_by_node}
    nodes = {name: item for name, item in world.nodes.items() if name in listed | others}
    assert rules.plan(replace(world, nodes=nodes)).actions == ()


@given(worlds(), st.data())
def test_what_ec2_leaves_out_ends_no_instance_in_use_and_sends_no_job_away(
    world: snapshot.Snapshot, data: st.DataObject
):
    """Leave out any part of EC2's list.

    A node that responds runs on an instance all the same.
    """
    listed = data.draw(st.sets(st.sampled_from(IDS), max_size=len(IDS) - 1))
    part = tuple(item for item in world.instances if item.id in listed)
    over = {item.id for item in part if not item.state.live}
    for action in rules.plan(replace(world, instances=part)).actions:
        if isinstance(action, Terminate):
            found = world.nodes.get(action.instance.node or "")
            in_use = found is not None and found.up and not found.invalid
            machine = action.instance
            ours = found is not None and found.instance_id == machine.id and machine.state.live
            assert not (in_use and ours and machine.id not in world.journal.termination_causes), (
                action
            )
        elif isinstance(action, MarkDown):
            answering = world.nodes[action.node]
            assert not answering.up or answering.instance_id in over or answering.invalid, action


@given(worlds(), st.data())
def test_nothing_is_done_while_ec2_leaves_out_most_of_the_live_instances(
    world: snapshot.Snapshot, data: st.DataObject
):
    """Leave them out for less than ten minutes."""
    known = frozenset(f"i-known-{number}" for number in range(7, 7 + data.draw(st.integers(7, 20))))
    since = data.draw(st.sampled_from([None, NOW, NOW - snapshot.BELIEVED_AFTER + 1]))
    found = rules.plan(
        replace(world, known_instances=world.known_instances | known, doubted_since=since)
    )
    assert found.actions == ()
    assert not found.cloud_believed or "Slurm lists" in found.blocked_by
