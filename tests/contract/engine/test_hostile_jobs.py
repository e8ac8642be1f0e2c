"""Jobs that can't begin as a whole, through the programs: no instance is paid for in their name.

A het job begins when all its components have their nodes, and a job on shared nodes when all of
these are up. A quota that other jobs of ours fill comes free without a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from tests.contract.engine.world import Reply, World, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.engine.world import Lie

G = hostlist.expand("gpu-[001-008]")
C = hostlist.expand("cpu-[1-4]")
NO_CPU = "InsufficientInstanceCapacity"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path) as one:
        yield one


def without_cpu(world: World, code: str = NO_CPU) -> Lie:
    """EC2 has no instance of the cpu pool's only type."""
    return world.ec2.lie(
        "RunInstances",
        Reply.refusal(code, status=500),
        when=lambda call: call.params["InstanceType"].startswith("m7i"),
    )


def het(world: World) -> None:
    """A het job of two components, one of them in the cpu pool."""
    world.slurm.start(7, G[:2], whole=7)
    world.slurm.start(8, C[:1], whole=7)


def on(world: World) -> set[str | None]:
    return {item.node for item in world.live()}


def minutes(world: World, seconds: int) -> None:
    """Normal life for so long: requeued jobs start again, and nodes that are off come back."""
    end = world.clock.now() + seconds
    while world.clock.now() < end:
        world.slurm.schedule()
        if world.slurm.asks():
            world.resume()
        world.skip(5)
        if world.slurm.suspended:
            world.suspend()
        world.reconcile()


def test_of_a_het_job_that_lacks_a_component_nothing_runs(world: World):
    without_cpu(world)
    het(world)
    assert world.resume() == 0
    assert on(world) == set()
    assert {world.slurm.queue[job].state for job in (7, 8)} == {"PENDING"}
    for node in (*G[:2], *C[:1]):
        assert world.slurm.state[node].reason == f"toolkit: no-capacity ({NO_CPU})"
    for job in (7, 8):
        assert NO_CPU in world.slurm.queue[job].comment


def test_a_het_job_that_has_all_its_nodes_keeps_them(world: World):
    het(world)
    assert world.resume() == 0
    assert on(world) == {*G[:2], *C[:1]}
    assert {world.slurm.queue[job].state for job in (7, 8)} == {"RUNNING"}


def test_a_het_job_that_can_not_begin_starts_no_instance_again_and_again(world: World):
    without_cpu(world)
    het(world)
    minutes(world, 240)
    assert on(world) == set()
    launched = [item for item in world.instances() if item.node is not None]
    assert len(launched) <= 2, "the first try can't know; the others ask for the cpu node first"
    assert len(world.slurm.queue[7].comment) < 2000


def test_a_job_that_shares_a_node_that_can_not_be_had_keeps_no_other(world: World):
    without_cpu(world)
    world.slurm.start(7, (G[0], C[0]))
    world.slurm.start(8, (C[0], G[1]))
    assert world.resume() == 0
    assert on(world) == set()
    assert NO_CPU in world.slurm.queue[8].comment


def test_a_job_loses_no_node_to_one_that_shares_it_and_can_not_begin(world: World):
    without_cpu(world)
    world.slurm.start(7, (G[0], G[1]))
    world.slurm.start(8, (G[1], C[0], G[2]))
    assert world.resume() == 0
    assert on(world) == {G[0], G[1]}
    assert {world.slurm.queue[job].state for job in (7, 8)} == {"RUNNING", "PENDING"}
    assert "POWERING_UP" in world.slurm.flags(G[1])


def test_a_node_is_brought_for_a_job_although_the_first_that_lists_it_can_not_begin(world: World):
    without_cpu(world)
    world.slurm.start(7, (G[0], G[1]), whole=7)
    world.slurm.start(8, (C[0],), whole=7)
    world.slurm.start(9, (G[1], G[2]))
    assert world.resume() == 0
    assert on(world) == {G[1], G[2]}
    assert [world.slurm.queue[job].state for job in (7, 8, 9)] == ["PENDING", "PENDING", "RUNNING"]


QUOTA = "VcpuLimitExceeded"


def test_a_job_waits_for_a_quota_that_other_jobs_of_ours_fill(world: World):
    world.slurm.start(7, G[:2])
    world.resume()
    world.boot()
    lie = world.ec2.lie("RunInstances", Reply.refusal(QUOTA))
    world.slurm.start(8, G[2:4])
    assert world.resume() == 0
    assert not world.slurm.queue[8].held
    assert world.slurm.state[G[2]].reason == f"toolkit: quota ({QUOTA})"
    assert QUOTA in world.slurm.queue[8].comment
    world.slurm.finish(7)
    lie.times = 0
    minutes(world, 60)
    assert world.slurm.queue[8].state == "RUNNING"
    assert on(world) >= set(world.slurm.queue[8].nodes)


def test_a_job_that_exceeds_a_quota_alone_is_held(world: World):
    world.slurm.start(7, C[:1])
    world.resume()
    world.ec2.lie("RunInstances", Reply.refusal(QUOTA))
    world.slurm.start(8, G[2:4])
    assert world.resume() == 0
    assert world.slurm.queue[8].held


def test_jobs_that_a_quota_refuses_together_are_tried_alone(world: World):
    world.ec2.lie(
        "RunInstances", Reply.refusal(QUOTA), when=lambda call: int(call.params["MaxCount"]) > 4
    )
    world.slurm.start(7, G[:4])
    world.slurm.start(8, G[4:8])
    assert world.resume() == 0
    assert on(world) == set(G)
