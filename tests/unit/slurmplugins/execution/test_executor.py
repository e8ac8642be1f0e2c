"""The executor with failed actions, slow calls and concurrent changes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import SlurmRefused
from slurmplugins.execution.job_notices import JobNotifier
from slurmplugins.execution.termination import (
    TERMINATE_SECONDS,
    VERIFY_PAUSE,
    VERIFY_TRIES,
    Terminator,
)
from slurmplugins.model import hostlist
from slurmplugins.model.actions import MarkDown, Terminate
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import Failure
from slurmplugins.node import agent
from slurmplugins.power_save.resume import resume
from slurmplugins.reconciler.run import run_pass
from slurmplugins.state.journal import LISTING_DELAY_SECONDS, Journal
from slurmplugins.state.launch_budget_file import LaunchBudget
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.logger import Log
from tests.fakes.boundaries import watch
from tests.fakes.clock import FakeClock
from tests.fakes.engine import Bench
from tests.fakes.metadata import FakeMetadata
from tests.fakes.slurm import FakeSlurm, JobState
from tests.unit.slurmplugins.reconciler.test_decisions import instance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.slurm import agent_requests

G = hostlist.expand("gpu-[001-008]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_list_that_is_too_old_for_its_turn_is_read_again(bench: Bench):
    """Let another resume launch between the list and the plan.

    A third process had claimed the node while this resume listed the instances. This resume then
    waits longer than LISTING_DELAY_SECONDS, so the journal no longer reports the launch as recent.
    """
    journal, cloud = bench.engine.journal, bench.cloud
    ask = bench.slurm.start(7, G[:1])
    before = cloud.instances
    lists: list[int] = []

    with journal.resume_process() as other:
        journal.claim(other, lambda _: G[:1])

        def meanwhile(place: str) -> None:
            if place == "cloud.instances: done" and not lists:
                lists.append(len(before()))
                journal.release(other, G[:1])
                resume(bench.engine, [ask])
                bench.clock.advance(LISTING_DELAY_SECONDS + 1)

        resume(watch(bench.engine, meanwhile), [ask])
    assert lists == [0]
    assert len(cloud.requests) == 1
    assert len(cloud.live()) == 1


class SlowCloud:
    """A cloud that terminates one instance a call.

    EC2 does so in a call for a thousand, once its bucket is empty.
    """

    def __init__(self) -> None:
        self.over: set[str] = set()

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        self.over.add(ids[0])
        return frozenset(self.over)


def ended(tmp_path: Path, count: int) -> tuple[int, FakeClock]:
    clock = FakeClock()
    cloud: Any = SlowCloud()
    ends = Terminator(
        cloud, Journal(tmp_path, clock), clock, Log([].append, clock), LaunchBudget(tmp_path, clock)
    )
    actions = [
        Terminate(instance(f"i-{number}"), EndCause.SUSPEND, "test") for number in range(count)
    ]
    outcomes = ends.run(actions)
    return sum(1 for item in outcomes if not item.error), clock


def test_a_round_that_terminated_an_instance_is_no_failed_try(tmp_path: Path):
    assert ended(tmp_path, VERIFY_TRIES * 3)[0] == VERIFY_TRIES * 3


def test_a_program_terminates_instances_for_two_minutes_and_leaves_the_rest_to_the_next_pass(
    tmp_path: Path,
):
    count, clock = ended(tmp_path, 100)
    assert sum(clock.slept) == TERMINATE_SECONDS
    assert count == TERMINATE_SECONDS / VERIFY_PAUSE + 1


def test_a_launch_that_succeeds_makes_its_offering_available_again(bench: Bench):
    """Mark all offerings unavailable, then launch.

    The offering whose mark ends first is tried. Its launch succeeds, so the mark was wrong.
    """
    offerings = bench.config.pools["gpu"].offerings
    for item in offerings:
        bench.engine.unavailable_offerings.mark_unavailable(
            item, error_codes.error("InsufficientInstanceCapacity", "none")
        )
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (request,) = bench.cloud.requests
    left = {item.key for item in offerings} - {request.offering.key}
    assert bench.engine.unavailable_offerings.entries().keys() == left


def test_no_job_is_requeued_on_a_list_that_is_not_believed(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:6])])
    bench.clock.advance(10)
    bench.boot()
    run_pass(bench.engine)
    hidden, bench.cloud.machines = bench.cloud.machines, {}
    bench.slurm.silence(G[:6])
    bench.slurm.fail(7)
    run_pass(bench.engine)
    assert bench.events(LogEvent.ACTIONS_BLOCKED)
    assert 7 in bench.slurm.over
    bench.cloud.machines = hidden
    run_pass(bench.engine)
    assert bench.slurm.queue[7].state == "PENDING"


def test_each_half_of_a_refused_batch_is_checked_again(bench: Bench):
    """Let a node register while slurmctld refuses the whole batch.

    That node must not be set DOWN now.
    """
    fit = {*G[:4]}

    def down(nodes: Sequence[NodeName], reason: str) -> None:
        if len(nodes) == 4:
            fit.discard(G[3])
            raise SlurmRefused("invalid node")
        bench.slurm.writes.append(f"down {','.join(nodes)} {reason}")

    bench.slurm.down = down  # type: ignore[method-assign,assignment]
    actions = [MarkDown(node, "toolkit: test") for node in G[:4]]
    bench.engine.executor.run(actions, fit.intersection)
    assert bench.slurm.writes == [
        "down gpu-001,gpu-002 toolkit: test",
        "down gpu-003 toolkit: test",
    ]


def test_a_refused_comment_keeps_no_other_job_from_its_comment(bench: Bench):
    """Notify two failed jobs, of which the first has ended."""
    bench.slurm.queue[8] = JobState()
    failures = [Failure(job, G[:1], "no-capacity", message="none left") for job in (7, 8)]
    JobNotifier(bench.slurm, bench.engine.log).notify_failures(failures)
    assert "none left" in bench.slurm.queue[8].comment
    assert [item["job"] for item in bench.events(LogEvent.JOB_COMMENT_FAILED)] == [7]


class Stage:
    """A node agent whose drain ends just after jobs are listed."""

    def __init__(self, place: Path) -> None:
        clock = FakeClock()
        self.slurm = FakeSlurm(clock)
        self.slurm.define(G[:1])
        self.slurm.start(7, G[:1])
        self.slurm.register(G[0], "i-1")
        self.listed = threading.Event()
        drain = self.slurm.drain

        def drain_later(nodes: Sequence[NodeName], reason: str) -> None:
            self.listed.wait(10)
            drain(nodes, reason)

        self.slurm.drain = drain_later  # type: ignore[method-assign,assignment]
        metadata = FakeMetadata()
        metadata.values["spot/instance-action"] = (
            '{"action": "terminate", "time": "2026-11-18T12:35:20Z"}'
        )
        self.agent = agent.Agent(
            node=G[0],
            instance_id="i-1",
            metadata=metadata,
            slurm=self.slurm,
            read_attempts=self.jobs,
            stop_directory=place,
            clock=clock,
            log=Log([].append, clock),
        )

    def jobs(self) -> frozenset[agent_requests.JobAttempt]:
        """List the attempts, then start job 8 and await the drain.

        Job 8 starts after the list is made, so it is not in the answer.
        """
        attempts = frozenset((job, 0) for job in self.slurm.queue)
        self.slurm.queue.setdefault(8, JobState(nodes=G[:1], state="RUNNING"))
        self.listed.set()
        for _ in range(5000):
            if self.agent.drained:
                break
            time.sleep(0.001)
        return attempts


def test_a_job_that_starts_between_the_list_of_jobs_and_the_drain_is_asked_too(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.agent.poll()
    assert stage.agent.drained
    stage.agent.poll()
    assert {item.name for item in tmp_path.iterdir()} == {"7.0.json", "8.0.json"}
