"""The world that hostile tests begin with is a sound one: the programs do their work in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from tests.contract.engine.world import Reply, World, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = hostlist.expand("gpu-[001-002]")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path, speed=10.0) as one:
        yield one


def test_a_job_gets_its_instances_and_they_end_after_it(world: World):
    world.slurm.start(7, NODES)
    assert world.resume() == 0
    assert {item.node for item in world.live()} == set(NODES)
    world.boot()
    assert all("POWERING_UP" not in world.slurm.flags(node) for node in NODES)
    assert world.reconcile(2) == 0
    assert len(world.live()) == 2
    world.slurm.finish(7)
    world.slurm.power_down(NODES)
    world.slurm.tick()
    assert world.suspend() == 0
    assert world.live() == []


def test_a_job_that_ec2_refuses_is_given_back_with_its_word(world: World):
    world.ec2.lie("RunInstances", Reply.refusal("InsufficientInstanceCapacity", status=500))
    world.slurm.start(7, NODES)
    assert world.resume() == 0
    assert world.live() == []
    reason = world.slurm.state[NODES[0]].reason
    assert reason == "toolkit: no-capacity (InsufficientInstanceCapacity)"
    assert "InsufficientInstanceCapacity" in world.slurm.queue[7].comment


def test_an_instance_that_nobody_wants_ends(world: World):
    world.slurm.start(7, NODES)
    world.resume()
    world.boot()
    world.slurm.finish(7)
    for node in NODES:
        world.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    world.skip(600)
    world.reconcile(2)
    assert world.live() == []
