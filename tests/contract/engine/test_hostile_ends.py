"""The programs where EC2 ends nothing, or starts too little: launches stay bounded all the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.model import hostlist
from tests.contract.engine.world import Reply, World, opened
from toolkit.local.instance_events import InstanceEvents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurmplugins.model.hostlist import NodeName
    from toolkit.local.endpoint import Call

NODES = hostlist.expand("gpu-[001-002]")
CPU = hostlist.expand("cpu-1")
REFUSALS = {
    "UnauthorizedOperation": Reply.refusal("UnauthorizedOperation", status=403),
    "RequestLimitExceeded": Reply.refusal("RequestLimitExceeded", status=503),
    "InternalError": Reply.refusal("InternalError", status=500),
}
NONE_LEFT = Reply.refusal("InsufficientInstanceCapacity", status=500)


ROUNDS = 8


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path, speed=10.0) as one:
        yield one


def goes_on(world: World, seconds: float) -> None:
    """Time passes, slurmctld does what is due, and the programs that it or the timer starts run."""
    world.skip(seconds)
    failed = hostlist.compress(world.slurm.resume_failed)
    world.slurm.resume_failed.clear()
    if failed:
        world.run("resume_fail", failed)
    if world.slurm.suspended:
        world.suspend()
    world.reconcile()


def free(world: World, nodes: tuple[NodeName, ...]) -> bool:
    """slurmctld may start a job on these nodes."""
    return all(world.slurm.flags(node) >= {"IDLE", "POWERED_DOWN"} for node in nodes)


def again(world: World, job: int, nodes: tuple[NodeName, ...]) -> None:
    """slurmctld starts the job on these nodes, if it may and they are free."""
    state = world.slurm.queue[job]
    if state.state == "PENDING" and not state.held and free(world, nodes):
        world.slurm.start(job, nodes)
        world.resume()


def of_cpu(call: Call) -> bool:
    """The call is for instances of the pool cpu."""
    return "demo-cpu" in call.params.values()


def started(world: World) -> int:
    return len(world.instances())


@pytest.mark.parametrize("code", REFUSALS)
def test_a_job_that_comes_back_gets_few_instances_while_none_can_be_ended(world: World, code: str):
    """Each try is on other nodes, so nothing of what is left over stands in its way."""
    world.ec2.lie("TerminateInstances", REFUSALS[code])
    world.ec2.lie("RunInstances", NONE_LEFT, when=of_cpu)
    world.slurm.start(7, (*NODES, *CPU))
    world.resume()
    for first in (3, 5, 7):
        goes_on(world, 121)
        again(world, 7, (*hostlist.expand(f"gpu-[{first:03}-{first + 1:03}]"), *CPU))
    assert started(world) <= 2 * len(NODES)
    assert world.slurm.state[CPU[0]].reason == f"toolkit: not-ended ({code})"
    assert not world.slurm.queue[7].held


def test_a_node_whose_instance_can_not_be_ended_gets_no_second_one(world: World):
    """The node is free again to slurmctld, which has forgotten what became of it."""
    world.ec2.lie("TerminateInstances", REFUSALS["UnauthorizedOperation"])
    world.slurm.start(7, NODES)
    world.resume()
    world.slurm.down(NODES, "cancelled")
    world.slurm.power_down(NODES)
    world.slurm.tick()
    world.suspend()
    world.slurm.resume(NODES)
    again(world, 7, NODES)
    assert started(world) == len(NODES)
    reason = world.slurm.state[NODES[0]].reason
    assert reason == "toolkit: not-ended (UnauthorizedOperation)"
    assert not world.slurm.queue[7].held
    world.ec2.honest()
    for _ in range(2):
        goes_on(world, 61)
    again(world, 7, NODES)
    assert {item.node for item in world.live()} == set(NODES)


def test_while_nothing_can_be_ended_nothing_is_started_and_the_first_end_opens(world: World):
    world.ec2.lie("TerminateInstances", REFUSALS["UnauthorizedOperation"])
    world.slurm.start(7, NODES)
    world.resume()
    for _ in range(3):
        goes_on(world, 200)
    world.slurm.start(8, CPU)
    world.resume()
    assert started(world) == len(NODES)
    assert world.slurm.state[CPU[0]].reason == "toolkit: not-ended (UnauthorizedOperation)"
    assert "EC2 has terminated nothing for" in world.slurm.queue[8].comment
    assert not world.slurm.queue[8].held
    world.ec2.honest()
    for _ in range(2):
        goes_on(world, 61)
    again(world, 8, CPU)
    assert [item.node for item in world.live()] == list(CPU)


def test_a_job_that_ec2_begins_to_serve_again_and_again_is_held(world: World):
    """One pool has instances and the other has none: each try starts some and ends them."""
    world.ec2.lie("RunInstances", NONE_LEFT, when=of_cpu)
    world.slurm.start(7, (*NODES, *CPU))
    world.resume()
    for _ in range(6):
        goes_on(world, 121)
        again(world, 7, (*NODES, *CPU))
    assert 0 < started(world) <= 3 * 3
    assert world.live() == []
    job = world.slurm.queue[7]
    assert job.held
    assert "toolkit: launch-loop held, release it after fixing this" in job.comment
    world.ec2.honest()
    world.slurm.release(7)
    goes_on(world, 121)
    again(world, 7, (*NODES, *CPU))
    assert {item.node for item in world.live()} == {*NODES, *CPU}


def test_a_running_job_whose_spot_instances_are_taken_for_days_is_never_held(world: World):
    world.slurm.start(7, NODES)
    world.resume()
    for _ in range(4):
        world.boot()
        world.reconcile()
        for item in world.live():
            InstanceEvents(world.local.cloud.tables).interrupt(item.id, 0.0)
        goes_on(world, 3600)
        for _ in range(ROUNDS):  # on a busy machine a pass may find its view too old to act on
            goes_on(world, 3600)
            if free(world, NODES):
                break
        again(world, 7, NODES)
    assert not world.slurm.queue[7].held
    assert len(world.live()) == len(NODES)


def test_a_job_above_the_rate_that_cluster_yaml_tells_is_held_before_anything_is_started(
    world: World,
):
    world.configure(instance_rate={"burst": 1, "per_second": 0.01})
    world.slurm.start(7, NODES)
    world.resume()
    assert world.ec2.count("RunInstances") == 0
    assert world.slurm.queue[7].held
    comment = world.slurm.queue[7].comment
    assert "toolkit: rate-too-low held" in comment
    assert "aws.instance_rate (burst 1, per_second 0.01)" in comment


def test_a_job_above_the_rate_that_is_assumed_is_tried_once_and_held(tmp_path: Path):
    """The account might have had more: so EC2 is asked, but never a second time for the same."""
    throttled = Reply.refusal("RequestLimitExceeded", status=503)
    with opened(tmp_path) as world:  # at our own speed: the search has to reach EC2 in its time
        world.configure(**wide(world, count=1050, resume_timeout=40))
        world.ec2.lie("RunInstances", throttled, when=lambda _: world.ec2.count("RunInstances") > 1)
        nodes = hostlist.expand("gpu-[1-1050]")
        world.slurm.start(7, nodes)
        world.resume()
        assert 0 < started(world) < len(nodes)
        assert world.live() == []
        assert world.slurm.queue[7].held
        assert f"EC2 started {started(world)} of 1050 instances" in world.slurm.queue[7].comment


def wide(world: World, *, count: int, resume_timeout: float) -> dict[str, Any]:
    """Settings with so many nodes in the pool gpu."""
    settings = json.loads((world.folder / "burst.json").read_text())
    settings["pools"]["gpu"]["nodes"] = f"gpu-[1-{count}]"
    settings["slurm"]["resume_timeout"] = resume_timeout
    return settings
