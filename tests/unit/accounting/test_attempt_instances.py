"""The instances of an attempt, and its share of each."""

from fractions import Fraction

import pytest

from tests.unit.accounting.samples import G5, T0, an_attempt, an_instance
from toolkit.accounting.attempt_instances import Wait, match_instances, node_share
from toolkit.accounting.node_instances import NodeInstances
from toolkit.accounting.tres import Tres
from toolkit.prices import Shape

NOW = T0 + 10_000


def match_all(attempts, instances):
    shapes = {instance.instance_id: G5 for instance in instances}
    return match_instances(attempts, instances, shapes, NOW)


def test_an_attempt_is_charged_to_the_instance_that_was_its_node_at_its_start():
    first = an_instance("i-1", ended=T0 + 1000)
    second = an_instance("i-2", launched=T0 + 1100)
    attempt = an_attempt(started=T0 + 1200, ended=T0 + 1300)
    assert list(match_all([attempt], [first, second]).usages) == ["i-2"]


def test_an_attempt_that_ended_late_is_not_charged_to_the_next_instance_of_its_node():
    first = an_instance("i-1", ended=T0 + 700)
    second = an_instance("i-2", launched=T0 + 750)
    attempt = an_attempt(started=T0 + 600, ended=T0 + 5000, state="NODE_FAIL")
    usages = match_all([attempt], [first, second]).usages
    assert list(usages) == ["i-1"]
    assert (usages["i-1"][0].start, usages["i-1"][0].end) == (T0 + 600, T0 + 700)


def test_an_attempt_without_an_end_ends_with_its_instance():
    usages = match_all([an_attempt(ended=None)], [an_instance(ended=T0 + 900)]).usages
    assert usages["i-1"][0].end == T0 + 900


def test_a_running_attempt_is_charged_up_to_now():
    usages = match_all([an_attempt(ended=None)], [an_instance(ended=None)]).usages
    assert usages["i-1"][0].end == NOW


@pytest.mark.parametrize(
    ("state", "ended", "wait_end"),
    [("RUNNING", None, NOW), ("CANCELLED", T0 + 50, T0 + 50), ("BOOT_FAIL", T0 + 50, T0 + 50)],
)
def test_an_attempt_that_started_before_the_launch_waits_for_its_instance(state, ended, wait_end):
    attempt = an_attempt(started=T0 - 5, ended=ended, state=state)
    match = match_all([attempt], [an_instance(ended=None)])
    assert match.usages == {}
    assert match.waits == {"i-1": (Wait(1, T0, wait_end),)}


def test_an_attempt_waited_for_all_instances_that_were_launched_meanwhile():
    attempt = an_attempt(started=T0 - 5, ended=T0 + 900, state="BOOT_FAIL")
    first = an_instance("i-1", ended=T0 + 100, end_cause="resume-failed")
    second = an_instance("i-2", launched=T0 + 200, ended=T0 + 900, end_cause="boot-failed")
    assert set(match_all([attempt], [first, second]).waits) == {"i-1", "i-2"}


def test_an_attempt_that_waits_for_one_node_uses_none_of_its_nodes():
    attempt = an_attempt(
        started=T0 + 90, ended=T0 + 300, state="CANCELLED", nodes=("gpu-001", "gpu-002")
    )
    up = an_instance("i-1")
    booting = an_instance("i-2", node="gpu-002", launched=T0 + 100)
    match = match_all([attempt], [up, booting])
    assert match.usages == {}
    assert match.waits == {
        "i-1": (Wait(1, T0 + 90, T0 + 300),),
        "i-2": (Wait(1, T0 + 100, T0 + 300),),
    }


def test_the_first_attempt_on_an_instance_waited_for_it_since_its_submission():
    attempts = [
        an_attempt(1, submitted=T0 + 40, started=T0 + 100, ended=T0 + 200),
        an_attempt(2, submitted=T0 + 40, started=T0 + 300, ended=T0 + 400),
    ]
    assert match_all(attempts, [an_instance()]).waits == {"i-1": (Wait(1, T0 + 40, T0 + 100),)}


def test_a_node_is_kept_for_a_job_from_the_launch_of_its_other_node_on():
    ada = an_attempt(1, started=T0 + 60, ended=T0 + 400)
    bob = an_attempt(
        2, submitted=T0 + 450, started=T0 + 1100, ended=T0 + 2000, nodes=("gpu-001", "gpu-002")
    )
    instances = [an_instance("i-1"), an_instance("i-2", node="gpu-002", launched=T0 + 500)]
    match = match_all([ada, bob], instances)
    assert match.waits["i-1"] == (Wait(1, T0, T0 + 60), Wait(2, T0 + 500, T0 + 1100))
    assert match.waits["i-2"] == (Wait(2, T0 + 500, T0 + 1100),)


def test_an_attempt_that_failed_at_once_used_its_instance_for_no_second():
    attempt = an_attempt(started=T0 + 100, ended=T0 + 100, state="FAILED")
    match = match_all([attempt], [an_instance()])
    assert [(use.start, use.end) for use in match.usages["i-1"]] == [(T0 + 100, T0 + 100)]
    assert match.waits == {"i-1": (Wait(1, T0, T0 + 100),)}


def test_an_attempt_that_surely_ran_used_its_instance_although_the_clocks_differ():
    attempt = an_attempt(started=T0 - 3, ended=T0 + 600)
    match = match_all([attempt], [an_instance()])
    assert [(use.start, use.end) for use in match.usages["i-1"]] == [(T0, T0 + 600)]


def test_an_attempt_that_never_got_an_instance_is_not_reported():
    for state in ("NODE_FAIL", "REQUEUED", "BOOT_FAIL", "CANCELLED"):
        assert match_all([an_attempt(state=state)], []).without_instance == ()


def test_an_attempt_uses_the_instance_that_came_up_if_the_launch_before_it_failed():
    failed = an_instance("i-1", ended=T0 + 7300, end_cause="resume-failed")
    match = match_all([an_attempt()], [failed, an_instance("i-2")])
    assert set(match.usages) == {"i-2"}


def test_an_attempt_that_ran_where_slurm_gave_the_node_up_has_its_usage():
    match = match_all([an_attempt()], [an_instance(end_cause="boot-failed")])
    assert set(match.usages) == {"i-1"}
    assert match.without_instance == ()


def test_an_attempt_without_an_instance_is_reported():
    assert match_all([an_attempt(nodes=("gpu-009",))], [an_instance()]).without_instance == (1,)


def test_the_head_node_has_no_usage_even_if_a_node_has_its_name():
    assert match_all([an_attempt()], [an_instance(pool="head")]).usages == {}


def test_an_instance_is_found_among_the_many_that_its_node_has_been():
    instances = [
        an_instance(f"i-{number}", launched=T0 + 100 * number, ended=T0 + 100 * number + 90)
        for number in range(50)
    ]
    # One of them lives on beside its followers: its end was never seen.
    instances[3] = an_instance("i-3", launched=T0 + 300, ended=T0 + 5000)
    nodes = NodeInstances([*instances, an_instance("i-head", pool="head")], NOW)
    names = [item.instance_id for item in nodes.between("gpu-001", T0 + 1195, T0 + 1205)]
    assert names == ["i-3", "i-12"]
    assert nodes.between("gpu-001", T0 - 50, T0 - 1) == []
    assert nodes.between("gpu-009", T0, NOW) == []
    assert nodes.next_launch(instances[12]) == T0 + 1300
    assert nodes.next_launch(instances[49]) == NOW


@pytest.mark.parametrize(
    ("tres", "nodes", "expected"),
    [
        (Tres(1, 2000, 1), 1, Fraction(1)),  # the only GPU: the whole instance
        (Tres(1, 8000, 0), 1, Fraction(1, 2)),  # memory dominates
        (Tres(3, 4000, 0), 1, Fraction(3, 4)),  # cores dominate
        (Tres(8, 32_000, 2), 2, Fraction(1)),  # the sum over two nodes
        (Tres(9, 99_000, 3), 1, Fraction(1)),  # never more than the instance
        (Tres(), 1, Fraction(1)),  # TRES unknown: the whole instance
    ],
)
def test_a_share_is_the_largest_of_the_gpu_cpu_and_memory_shares(tres, nodes, expected):
    names = tuple(f"gpu-{number:03}" for number in range(1, nodes + 1))
    assert node_share(an_attempt(tres=tres, nodes=names), G5) == expected


def test_the_nodes_that_are_no_instances_have_their_part_of_the_tres():
    """Take half an instance for a job with half a rack."""
    attempt = an_attempt(tres=Tres(4, 0, 0), nodes=("gpu-001",), node_count=2)
    assert node_share(attempt, G5) == Fraction(1, 2)


def test_an_instance_of_unknown_shape_is_charged_whole_to_its_job():
    assert node_share(an_attempt(tres=Tres(1, 1, 0)), None) == 1
    assert node_share(an_attempt(tres=Tres(1, 1, 0)), Shape(0, 0, 0)) == 1
