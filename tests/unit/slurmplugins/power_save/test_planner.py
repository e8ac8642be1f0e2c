"""Plans of resume, made of Slurm's requests, EC2's list and the journal.

Each test compares a whole plan and states one law.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmplugins.config import burst as burst_config
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import (
    Assignment,
    EndCause,
    Instance,
    InstanceState,
    Lifecycle,
    Policy,
    PolicyName,
)
from slurmplugins.model.launch import Failure, JobLaunch, JobRequest, NodeRequest, ResumePlan
from slurmplugins.model.node import Node
from slurmplugins.power_save import planner
from slurmplugins.power_save.suspend import plan_terminations
from slurmplugins.state.journal_view import JournalView
from tests.fakes.engine import burst

NOW = 1_795_000_000.0
CONFIG = burst_config.parse(burst())
GPU, CPU = CONFIG.pools["gpu"], CONFIG.pools["cpu"]
G = hostlist.expand("gpu-[001-004]")
C = hostlist.expand("cpu-[1-2]")
NOBODYS = hostlist.expand("fpga-[1-2]")
S = InstanceState
RUNGS = tuple((item,) for item in GPU.offerings)
SPOT, DEMAND = RUNGS[:2], RUNGS[2:]


def machine(id_: str = "i-1", node: hostlist.NodeName | None = G[0], **more: Any) -> Instance:
    base = Instance(
        id=id_,
        state=S.RUNNING,
        role="compute",
        node=node,
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone="us-east-1a",
        lifecycle=Lifecycle.SPOT,
        address=f"10.42.1.{id_[2:]}",
        price="0.4",
        launched_at=NOW - 60,
    )
    return replace(base, **more)


def made(id_: str = "i-1", node: hostlist.NodeName = G[0]) -> Assignment:
    return Assignment(node, id_, f"10.42.1.{id_[2:]}", "g5.xlarge")


def planned(
    *asks: JobRequest,
    listed: tuple[Instance, ...] = (),
    config: burst_config.BurstConfig = CONFIG,
    waited: dict[int, float] | None = None,
    **journal: Any,
) -> ResumePlan:
    return planner.plan_resume(
        asks, listed, JournalView(**journal), config, NOW, queue_seconds=waited
    )


def launch(*nodes: hostlist.NodeName, job: int = 7, ladder: Any = RUNGS) -> JobLaunch:
    return JobLaunch(job, (NodeRequest(job, nodes, GPU, ladder),), nodes)


# Launches


def test_a_job_without_instances_gets_one_launch_with_a_node_request_for_each_pool():
    ask = JobRequest(7, (G[0], C[0], G[1]))
    asks = (NodeRequest(7, G[:2], GPU, RUNGS), NodeRequest(7, C[:1], CPU, ((CPU.offerings[0],),)))
    plan = planned(ask)
    assert plan == ResumePlan(launches=(JobLaunch(7, asks, ask.nodes),), job_requests=(ask,))
    assert plan.nodes_to_claim == plan.affected_nodes == (G[0], G[1], C[0])


def test_only_the_nodes_without_an_instance_are_launched_of_a_job():
    ask = JobRequest(7, G[:2])
    plan = planned(ask, listed=(machine(),))
    assert plan.adoptions == (made(),)
    assert plan.launches == (JobLaunch(7, (NodeRequest(7, G[1:2], GPU, RUNGS),), G[:2]),)


def test_each_job_is_planned_by_itself_in_turn():
    plan = planned(JobRequest(7, (G[0], NOBODYS[0])), JobRequest(8, G[1:2]), listed=(machine(),))
    assert [item.job for item in plan.failures] == [7]
    assert plan.adoptions == ()
    assert plan.launches == (launch(G[1], job=8),)


@pytest.mark.parametrize(
    ("partition", "job", "waited", "ladder"),
    [
        ("fast", 7, {7: 60.0}, RUNGS),
        ("fast", 7, {7: 59.0}, SPOT),
        ("fast", 7, {8: 60.0}, SPOT),
        ("fast", None, {7: 60.0}, SPOT),
        ("", 7, {}, DEMAND),  # Slurm named no partition: the pool's counts.
        ("other", 7, {}, RUNGS),
    ],
)
def test_a_jobs_partition_and_wait_choose_its_fallback_order(
    partition: str, job: int | None, waited: dict[int, float], ladder: Any
):
    policies = {
        "fast": Policy(PolicyName.ON_DEMAND_AFTER, 60.0),
        "spot": Policy(PolicyName.ON_DEMAND_ONLY),
    }
    given = replace(CONFIG, policies=policies)
    plan = planned(JobRequest(job, G[:1], partition), config=given, waited=waited)
    assert plan.launches[0].node_requests[0].fallback_order == ladder


@pytest.mark.parametrize("job", [7, None])
def test_a_job_whose_wait_nobody_knows_has_not_waited(job: int | None):
    policies = {"spot": Policy(PolicyName.ON_DEMAND_AFTER, 1.0)}
    plan = planned(JobRequest(job, G[:1]), config=replace(CONFIG, policies=policies))
    assert plan.launches[0].node_requests[0].fallback_order == SPOT


def test_a_job_of_which_one_pool_has_no_offering_gets_nothing():
    given = replace(CONFIG, policies={"spot": Policy(PolicyName.SPOT_ONLY)})
    nodes = (G[0], C[0])
    text = "the policy leaves no offering of pool cpu to this job now"
    plan = planned(JobRequest(7, nodes), config=given)
    assert plan.launches == ()
    assert plan.failures == (Failure(7, nodes, "no-offering", message=text),)


@pytest.mark.parametrize(
    ("lives", "nodes", "spot"),
    [
        ("", 1, False),  # A pool of spot alone exceeds any share.
        ("1.2", 1, True),
        ("1.2", 4, False),
        ("0.3", 1, False),
    ],
)
def test_all_nodes_of_a_job_count_against_the_pools_share_of_spot(
    lives: str, nodes: int, spot: bool
):
    pool = replace(GPU, max_spot_share=0.5)
    given = replace(CONFIG, pools={**CONFIG.pools, "gpu": pool})
    other = machine(
        "i-9", node=hostlist.parse("gpu-008"), price=lives, lifecycle=Lifecycle.ON_DEMAND
    )
    plan = planned(JobRequest(7, G[:nodes]), config=given, listed=(other,) if lives else ())
    assert plan.launches[0].node_requests[0].fallback_order == (RUNGS if spot else DEMAND)


def test_a_job_counts_against_the_share_of_spot_for_the_jobs_after_it():
    pool = replace(GPU, max_spot_share=0.5)
    given = replace(CONFIG, pools={**CONFIG.pools, "gpu": pool})
    jobs = [JobRequest(number, (node,)) for number, node in enumerate(G)]
    ladders = [
        item.node_requests[0].fallback_order for item in planned(*jobs, config=given).launches
    ]
    # One on demand costs 1.006, two spot 0.4024 each: a third spot would exceed half.
    assert ladders == [DEMAND, RUNGS, RUNGS, DEMAND]


# Instances that exist already


def test_a_node_is_given_the_oldest_of_its_instances():
    pair = (machine("i-2", launched_at=NOW - 30), machine("i-3", launched_at=NOW - 40))
    assert planned(JobRequest(7, G[:1]), listed=pair).adoptions == (made("i-3"),)
    same = (machine("i-5"), machine("i-4"))
    assert planned(JobRequest(7, G[:1]), listed=same).adoptions == (made("i-4"),)


@pytest.mark.parametrize(
    "other", [machine(role="head"), machine(node=None), machine(role="head", node=None)]
)
def test_what_is_no_compute_instance_of_a_node_is_not_handed_out(other: Instance):
    plan = planned(JobRequest(7, G[:1]), listed=(other,))
    assert (plan.adoptions, plan.stale_instances) == ((), ())


@pytest.mark.parametrize(
    ("age", "adopted"), [(CONFIG.resume_timeout - 1, True), (CONFIG.resume_timeout, False)]
)
def test_an_instance_as_old_as_resume_timeout_is_replaced(age: float, adopted: bool):
    """Plan a node whose instance is about as old as ResumeTimeout.

    Slurm has given up on an older instance, or the instance existed before Slurm asked.
    """
    old = machine(launched_at=NOW - age)
    plan = planned(JobRequest(7, G[:1]), listed=(old,))
    if adopted:
        assert (plan.adoptions, plan.stale_instances, plan.launches) == ((made(),), (), ())
    else:
        assert (plan.adoptions, plan.stale_instances, plan.launches) == (
            (),
            (old,),
            (launch(G[0]),),
        )
        assert plan.affected_nodes == G[:1]


def test_an_instance_of_another_pool_or_of_a_node_powered_down_since_is_replaced():
    wrong = machine(pool="cpu")
    assert planned(JobRequest(7, G[:1]), listed=(wrong,)).stale_instances == (wrong,)
    plan = planned(JobRequest(7, G[:1]), listed=(machine(),), powered_down_ids=frozenset({"i-1"}))
    assert (plan.adoptions, plan.stale_instances, plan.launches) == (
        (),
        (machine(),),
        (launch(G[0]),),
    )


def test_beside_an_instance_that_is_handed_out_the_old_one_is_replaced():
    old = machine("i-2", launched_at=NOW - 999)
    plan = planned(JobRequest(7, G[:1]), listed=(machine(), old))
    assert (plan.adoptions, plan.stale_instances, plan.launches) == ((made(),), (old,), ())


def test_an_instance_that_ec2_does_not_list_yet_is_handed_out_as_the_journal_has_it():
    assignment = Assignment(G[0], "i-1", "10.9.9.9", "p5.48xlarge")
    plan = planned(JobRequest(7, G[:1]), recent_launches={"i-1": assignment})
    assert plan == ResumePlan(adoptions=(assignment,), job_requests=(JobRequest(7, G[:1]),))


def test_an_instance_that_ec2_lists_as_terminated_is_not_handed_out_from_the_journal():
    gone = machine(state=S.TERMINATED)
    plan = planned(JobRequest(7, G[:1]), listed=(gone,), recent_launches={"i-1": made()})
    assert (plan.adoptions, plan.stale_instances, plan.launches) == ((), (), (launch(G[0]),))


def test_an_instance_is_handed_out_under_the_name_it_was_given_last():
    journal = {"recent_launches": {"i-1": made("i-1", G[1])}, "former_nodes": {"i-1": {G[0]}}}
    plan = planned(JobRequest(7, G[1:2]), listed=(machine(),), **journal)
    assert (plan.adoptions, plan.launches) == ((made("i-1", G[1]),), ())
    assert plan.nodes_by_quota == {"spot:g": {G[1]}}


def test_the_share_of_spot_counts_an_instance_that_the_journal_has_renamed():
    """Rename an on-demand instance of the pool in the journal.

    Its price counts for its pool under any name.
    """
    journal = {"recent_launches": {"i-1": made("i-1", G[1])}, "former_nodes": {"i-1": {G[0]}}}
    pool = replace(GPU, max_spot_share=0.5)
    given = replace(CONFIG, pools={**CONFIG.pools, "gpu": pool})
    dear = machine(price="9", lifecycle=Lifecycle.ON_DEMAND)
    plan = planned(JobRequest(7, G[2:3]), listed=(dear,), config=given, **journal)
    assert plan.launches[0].node_requests[0].fallback_order == RUNGS


@pytest.mark.parametrize("state", S)
def test_beside_an_instance_marked_for_termination_another_is_launched_and_the_plan_says_so(
    state: InstanceState,
):
    condemned = machine(state=state)
    plan = planned(
        JobRequest(7, G[:1]), listed=(condemned,), termination_causes={"i-1": EndCause.SUSPEND}
    )
    if state is S.UNCLEAR:
        assert plan.launches == ()
    else:
        assert (plan.adoptions, plan.stale_instances, plan.launches) == ((), (), (launch(G[0]),))
    assert plan.unterminated_instances == ((condemned,) if state.live else ())


def test_the_instances_to_replace_and_those_that_should_be_over_are_all_told():
    old = tuple(machine(f"i-{n}", G[n], launched_at=NOW - 999) for n in (0, 1))
    condemned = tuple(machine(f"i-{n}", G[n]) for n in (2, 3))
    ended = dict.fromkeys(("i-2", "i-3"), EndCause.SUSPEND)
    plan = planned(
        JobRequest(7, G[:3]),
        JobRequest(8, G[3:]),
        listed=(*old, *condemned),
        termination_causes=ended,
    )
    assert (plan.stale_instances, plan.unterminated_instances) == (old, condemned)


def test_a_node_that_another_program_has_claimed_is_left_to_it():
    plan = planned(JobRequest(7, G[:2]), listed=(machine(),), claimed_nodes=frozenset(G[:1]))
    launched = JobLaunch(7, (NodeRequest(7, G[1:2], GPU, RUNGS),), G[:2])
    assert (plan.adoptions, plan.claimed_by_others, plan.launches) == ((), G[:1], (launched,))


def test_each_instance_that_will_end_one_day_fills_its_quota():
    static = replace(CONFIG, static_nodes=frozenset(G[2:3]))
    given_up = {"i-4": EndCause.RESUME_FAILED}
    listed = tuple(machine(f"i-{number}", node) for number, node in enumerate(G, 1))
    plan = planned(JobRequest(7, C[:1]), listed=listed, config=static, termination_causes=given_up)
    assert plan.nodes_by_quota == {"spot:g": set(G[:2])}


# Jobs that get nothing


def refused(
    *nodes: hostlist.NodeName, listed: tuple[Instance, ...] = (), **journal: Any
) -> Failure:
    """Plan a job of these nodes; return its failure.

    The failure is all that is planned.
    """
    ask = JobRequest(7, nodes)
    plan = planned(ask, listed=listed, **journal)
    (failure,) = plan.failures
    assert replace(plan, nodes_by_quota={}) == ResumePlan(failures=(failure,), job_requests=(ask,))
    assert (failure.job, failure.nodes) == (7, nodes)
    return failure


def test_a_job_on_a_node_that_burst_json_lacks_needs_a_person():
    failure = refused(G[0], *NOBODYS)
    text = "burst.json has no node fpga-1"
    assert failure == Failure(7, (G[0], *NOBODYS), "unknown-node", message=text, hold=True)


@pytest.mark.parametrize("which", ["claimed_to_resolve", "unresolved_nodes"])
def test_nothing_is_launched_beside_a_launch_that_got_no_answer(which: str):
    failure = refused(*G[:3], **{which: frozenset(G[1:3])})
    text = "an earlier launch for gpu-002 got no answer; its outcome is known within minutes"
    assert failure == Failure(7, G[:3], "launch-in-doubt", message=text)


@pytest.mark.parametrize("which", ["claimed_to_resolve", "unresolved_nodes"])
def test_a_launch_without_answer_is_in_no_doubt_where_its_instance_is_there(which: str):
    plan = planned(JobRequest(7, G[:1]), listed=(machine(),), **{which: frozenset(G[:1])})
    assert (plan.failures, plan.adoptions) == ((), (made(),))


@pytest.mark.parametrize(
    ("of_before", "journal"),
    [
        (machine(launched_at=NOW - 999), {}),
        (machine(), {"termination_causes": {"i-1": EndCause.SUSPEND}}),
        (machine(), {"powered_down_ids": frozenset({"i-1"})}),
        (machine(pool="cpu"), {}),
    ],
)
def test_an_instance_of_before_settles_no_launch_without_answer(
    of_before: Instance, journal: dict[str, Any]
):
    failure = refused(G[0], listed=(of_before,), unresolved_nodes=frozenset(G[:1]), **journal)
    assert failure.reason_code == "launch-in-doubt"


def test_an_unresolved_launch_that_another_program_has_claimed_is_left_to_it():
    plan = planned(
        JobRequest(7, G[:1]), unresolved_nodes=frozenset(G[:1]), claimed_nodes=frozenset(G[:1])
    )
    assert (plan.failures, plan.claimed_by_others) == ((), G[:1])


def test_an_instance_that_nobody_understands_is_not_handed_out_and_has_no_other_beside_it():
    strange = frozenset({"i-1"})
    assert (
        refused(G[0], listed=(machine(),), unreadable_ids=strange).reason_code == "launch-in-doubt"
    )
    gone = machine(state=S.SHUTTING_DOWN)
    assert planned(JobRequest(7, G[:1]), listed=(gone,), unreadable_ids=strange).failures == ()


def test_nothing_is_launched_beside_an_instance_in_a_state_that_nobody_knows():
    unclear = machine(state=S.UNCLEAR, unclear="hibernating")
    failure = refused(G[1], G[0], listed=(machine("i-2", G[1]), unclear))
    text = "i-1, of gpu-001, is in a state that the toolkit doesn't know: 'hibernating'"
    assert failure == Failure(7, (G[1], G[0]), "instance-unclear", message=text)


def test_nothing_is_launched_beside_an_instance_that_is_to_end_before_ec2_lists_it():
    failure = refused(*G[:2], recent_terminations={"i-1": made("i-1", G[1])})
    text = "i-1 of gpu-002 is to be terminated, and EC2 does not list it yet"
    assert failure == Failure(7, G[:2], "not-ended", message=text)


@pytest.mark.parametrize(
    "journal",
    [
        {"claimed_nodes": frozenset(G[:1])},
        {"recent_launches": {"i-2": made("i-2")}},
    ],
)
def test_an_unlisted_end_keeps_nothing_from_a_node_that_has_another_instance(
    journal: dict[str, Any],
):
    ending = {"i-1": made()}
    assert planned(JobRequest(7, G[:1]), recent_terminations=ending, **journal).failures == ()
    listed = (machine("i-2"),)
    assert planned(JobRequest(7, G[:1]), listed=listed, recent_terminations=ending).failures == ()


def test_an_unlisted_end_of_a_later_node_is_seen_behind_a_node_without_one():
    journal = {
        "claimed_nodes": frozenset(G[:1]),
        "recent_terminations": {"i-1": made(), "i-2": made("i-2", G[2])},
    }
    (failure,) = planned(JobRequest(7, G[:3]), **journal).failures
    assert failure.message.startswith("i-2 of gpu-003 is to be terminated")


def test_an_old_instance_does_not_stand_for_one_that_is_to_end_unlisted():
    old = machine("i-2", launched_at=NOW - 999)
    assert (
        refused(G[0], listed=(old,), recent_terminations={"i-1": made()}).reason_code == "not-ended"
    )


def test_an_end_that_ec2_lists_is_no_unlisted_one():
    journal = {
        "recent_terminations": {"i-1": made()},
        "termination_causes": {"i-1": EndCause.SUSPEND},
    }
    assert planned(JobRequest(7, G[:1]), listed=(machine(),), **journal).failures == ()


# Nodes that Slurm still waits for


def states(**flags: str) -> dict[hostlist.NodeName, Node]:
    """Make nodes with flags; the keyword `n1` is the first node."""
    return {
        G[int(number[1:]) - 1]: Node(G[int(number[1:]) - 1], frozenset(text.split("+")))
        for number, text in flags.items()
    }


@pytest.mark.parametrize(
    ("flags", "waits"),
    [
        ("ALLOCATED+POWERING_UP", True),
        ("IDLE+POWER_UP", True),
        ("ALLOCATED", False),
        ("DOWN", False),
        ("IDLE+POWERED_DOWN", False),
        ("ALLOCATED+POWERING_DOWN", False),
        ("UNREADABLE", True),
    ],
)
def test_a_job_is_launched_for_while_slurm_waits_for_each_of_its_nodes(flags: str, waits: bool):
    asks = [JobRequest(7, G[:2])]
    plan = ResumePlan(launches=(launch(*G[:2]),))
    seen = states(n1="ALLOCATED+POWERING_UP", n2=flags)
    text = "slurmctld no longer waits for gpu-002"
    failure = Failure(7, G[:2], "not-awaited", message=text)
    assert planner.still_awaited(asks, plan, seen) == ((asks, []) if waits else ([], [failure]))


def test_a_job_of_a_node_that_slurm_does_not_show_is_not_launched_for():
    left, failures = planner.still_awaited(
        [JobRequest(7, G[:1])], ResumePlan(launches=(launch(G[0]),)), {}
    )
    assert (left, [item.reason_code for item in failures]) == ([], ["not-awaited"])


@pytest.mark.parametrize(
    ("flags", "waits"),
    [("ALLOCATED", True), ("IDLE+POWERED_DOWN", False), ("DOWN", False)],
)
def test_a_node_that_is_up_on_what_the_plan_hands_out_is_waited_for(flags: str, waits: bool):
    left, _ = planner.still_awaited(
        [JobRequest(7, G[:1])], ResumePlan(adoptions=(made(),)), states(n1=flags)
    )
    assert bool(left) is waits


def test_a_node_that_works_on_an_instance_to_replace_keeps_it_and_leaves_the_request():
    ask = JobRequest(7, G[:3], shared_nodes=(G[0], G[3]))
    plan = ResumePlan(
        stale_instances=(machine(), machine("i-9", node=None)), launches=(launch(*G[:3]),)
    )
    seen = states(n1="ALLOCATED", n2="IDLE+POWERING_UP", n3="IDLE+POWERING_UP")
    assert planner.still_awaited([ask], plan, seen) == (
        [replace(ask, nodes=G[1:3], shared_nodes=G[3:4])],
        [],
    )


@pytest.mark.parametrize("flags", ["IDLE+POWERED_DOWN", "DOWN", "UNREADABLE", "UNREADABLE+DOWN"])
def test_no_instance_is_replaced_under_a_node_that_is_off_down_or_invalid(flags: str):
    plan = ResumePlan(
        stale_instances=(machine(), machine("i-9", node=None)), launches=(launch(G[0]),)
    )
    left, failures = planner.still_awaited([JobRequest(7, G[:1])], plan, states(n1=flags))
    if flags == "UNREADABLE":  # The node may be up on the instance.
        assert left == [JobRequest(7, ())]
    else:
        assert (left, len(failures)) == ([], 1)


def test_a_node_that_only_its_pool_wants_replaced_is_no_reason_against_an_invalid_one():
    plan = ResumePlan(stale_instances=(machine("i-9", node=None),), launches=(launch(G[0]),))
    ask = JobRequest(7, G[:1])
    assert planner.still_awaited([ask], plan, states(n1="UNREADABLE+DOWN")) == ([ask], [])


def test_a_node_for_which_nothing_is_planned_is_not_asked_about():
    asks = [JobRequest(7, G[:1])]
    assert planner.still_awaited(asks, ResumePlan(claimed_by_others=G[:1]), states(n1="DOWN")) == (
        asks,
        [],
    )


# Terminations by suspend


def test_suspend_terminates_each_instance_of_the_nodes_that_slurm_has_powered_down():
    listed = (machine("i-2"), machine("i-1"), machine("i-3", G[1]), machine("i-4", G[2]))
    nodes = states(n1="IDLE+POWERING_DOWN", n2="ALLOCATED", n3="IDLE+POWERED_DOWN")
    why = "Slurm powered the node down"
    assert plan_terminations((*G[:2], G[3]), listed, nodes, EndCause.ORPHAN) == (
        Terminate(listed[1], EndCause.ORPHAN, why),
        Terminate(listed[0], EndCause.ORPHAN, why),
    )


def test_suspend_terminates_nothing_of_a_node_that_slurm_does_not_show():
    assert plan_terminations(G[:1], [machine()], {}, EndCause.SUSPEND) == ()


def test_suspend_passes_over_a_node_without_an_instance():
    nodes = states(n1="IDLE+POWERED_DOWN", n2="IDLE+POWERED_DOWN")
    found = plan_terminations(G[:2], [machine("i-3", G[1])], nodes, EndCause.SUSPEND)
    assert [item.instance.id for item in found] == ["i-3"]
