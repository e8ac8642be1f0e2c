"""SIGKILL at every boundary of every program: no leak, no double.

A boundary is a call to the journal, the capacity memory, the cloud, Slurm or the object store. The
process dies once before each call takes effect. It dies once after the effect, before the program
has the answer.

Afterwards there is a state directory, a cluster in which EC2 and Slurm continue, and reconcile's
timer.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench
from tests.patience import PROGRAM_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurmplugins.model.instance import Instance

KILL_AT_BOUNDARIES = Path(__file__).with_name("kill_at_boundaries.py")
CLUSTER_FILE = "cluster.pickle"
NODES = hostlist.expand("gpu-[001-008]")
PASSES = 60
FEWEST = 8
"""The fewest boundaries of a program; with fewer, the test would have watched nothing."""

PERIOD = 15.0
"""Seconds between two passes of reconcile, as the timer has it."""

QUIET = 3
"""Passes for which all must stay well, within PASSES."""


def two_jobs_and_a_fallback(bench: Bench) -> None:
    bench.cloud.capacity = {SPOT_A: 3}
    bench.slurm.start(1, NODES[:3])
    bench.slurm.start(2, NODES[3:7])


def a_job_that_can_not_be_had_whole(bench: Bench) -> None:
    bench.cloud.capacity = {SPOT_A: 3, SPOT_B: 0, ON_DEMAND: 0}
    bench.slurm.start(1, (*NODES[:3], *hostlist.expand("cpu-[1-2]")))
    bench.cloud.refusals = {"on-demand:m7i.large:us-east-1a": "VcpuLimitExceeded"}
    bench.slurm.start(2, NODES[3:8])


def a_large_job(bench: Bench) -> None:
    bench.slurm.start(1, NODES[:5])


def a_large_job_whose_last_part_can_not_be_had(bench: Bench) -> None:
    bench.cloud.capacity = {SPOT_A: 4, SPOT_B: 3, ON_DEMAND: 0}
    bench.slurm.start(1, NODES[:5])
    bench.slurm.start(2, NODES[5:7])


def a_lost_answer(bench: Bench) -> None:
    bench.cloud.lag = 30.0
    bench.cloud.lose_answers = 1
    bench.slurm.start(1, NODES[:2])


def nodes_let_go(bench: Bench) -> None:
    up(bench, 4)
    bench.slurm.finish(1)
    bench.slurm.power_down(NODES[:4])
    bench.slurm.tick()


def machines_that_never_came_up(bench: Bench) -> None:
    ask = bench.slurm.start(1, NODES[:3])
    resume(bench.engine, [ask])
    bench.clock.advance(bench.slurm.resume_timeout + 1)
    bench.slurm.tick()


def a_world_in_disorder(bench: Bench) -> None:
    """Set up an orphan, a double, an interruption, and two faulty nodes.

    One node has no instance, and one is half given back.
    """
    up(bench, 5)
    first = live(bench)
    double = replace(first[NODES[0]], id="i-double", address="10.9.0.1")
    orphan = replace(first[NODES[0]], id="i-orphan", node=NODES[7], address="10.9.0.2")
    bench.cloud.add(double)
    bench.cloud.add(orphan)
    bench.clock.advance(bench.config.orphan_grace + 1)
    bench.cloud.interrupt(first[NODES[1]].id)
    bench.slurm.down([NODES[2]], "toolkit: no-capacity")
    bench.cloud.end(first[NODES[2]].id, "Client.UserInitiatedShutdown")


def up(bench: Bench, count: int) -> None:
    ask = bench.slurm.start(1, NODES[:count])
    resume(bench.engine, [ask])
    bench.clock.advance(PERIOD)
    bench.boot()


CASES: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "resume": ("resume", two_jobs_and_a_fallback),
    "resume-in-vain": ("resume", a_job_that_can_not_be_had_whole),
    "resume-in-parts": ("resume_in_parts", a_large_job),
    "resume-in-parts-in-vain": (
        "resume_in_parts",
        a_large_job_whose_last_part_can_not_be_had,
    ),
    "resume-unanswered": ("resume", a_lost_answer),
    "suspend": ("suspend", nodes_let_go),
    "resume-fail": ("resume_fail", machines_that_never_came_up),
    "reconcile": ("reconcile", a_world_in_disorder),
}


@pytest.mark.parametrize("case", CASES)
def test_a_program_killed_at_any_boundary_leaks_no_instance_and_launches_none_twice(
    case: str, tmp_path: Path
):
    lives = every_death(case, tmp_path)
    *killed, survivor = lives
    assert survivor["status"] == 0
    assert {item["status"] for item in killed} == {-signal.SIGKILL}
    assert len({item["at"] for item in killed}) >= FEWEST
    for item in lives:
        recovered(Path(item["state"]), item["at"] or "its end")


def every_death(case: str, directory: Path) -> list[dict[str, Any]]:
    """Run the case's program until it has died at each boundary."""
    program, prepare = CASES[case]
    template = directory / "template"
    template.mkdir()
    bench = Bench(template)
    prepare(bench)
    bench.save(template / CLUSTER_FILE)
    argv = [sys.executable, str(KILL_AT_BOUNDARIES), str(template), program, str(directory)]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=3 * PROGRAM_SECONDS)
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def recovered(state: Path, place: str) -> None:
    """Check that all is right again after a number of passes.

    Only time, Slurm and reconcile go on.
    """
    bench = Bench(state)
    bench.load(state / CLUSTER_FILE)
    journaled(bench, place)
    bench.cloud.calm()
    quiet = 0
    for _ in range(PASSES):
        bench.clock.advance(PERIOD)
        bench.boot()
        bench.slurm.tick()
        slurm_calls(bench)
        run_pass(bench.engine)
        no_doubles(bench, place)
        quiet = 0 if list(left_over(bench)) else quiet + 1
        if quiet == QUIET:
            return
    raise AssertionError(f"killed at {place}: {list(left_over(bench))}")


def slurm_calls(bench: Bench) -> None:
    """Make the calls that slurmctld makes.

    It suspends the nodes that it powers down, and starts the requeued jobs.
    """
    let_go, bench.slurm.suspended = bench.slurm.suspended, []
    failed, bench.slurm.resume_failed = bench.slurm.resume_failed, []
    suspend(bench.engine, let_go, EndCause.SUSPEND)
    suspend(bench.engine, failed, EndCause.RESUME_FAILED)
    resume(bench.engine, bench.slurm.schedule())


def journaled(bench: Bench, place: str) -> None:
    journal = bench.engine.state / "journal.jsonl"
    text = journal.read_text() if journal.exists() else ""
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    attempts = {line["attempt"] for line in lines if line["kind"] == "intent"}
    assert {item.attempt for item in bench.cloud.requests} <= attempts, place


def no_doubles(bench: Bench, place: str) -> None:
    ended = bench.engine.journal.view().termination_causes
    nodes = [item.node for item in bench.cloud.live() if item.id not in ended]
    assert len(nodes) == len(set(nodes)), f"two machines for a node after {place}"


def left_over(bench: Bench) -> Iterator[str]:
    machines = live(bench)
    if len(machines) != len(bench.cloud.live()):
        yield "two machines for a node"
    unsettled = {"DOWN", "DRAIN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN"}
    for name in bench.config.pool_by_node:
        flags = bench.slurm.flags(name)
        if flags & unsettled or (name in machines) == ("POWERED_DOWN" in flags):
            yield f"{name} is {sorted(flags)}, its machine {name in machines}"
    for number, job in bench.slurm.queue.items():
        runs = job.state == "RUNNING" and set(job.nodes) <= set(machines)
        if not (runs or job.held):  # a held job waits for a person
            yield f"job {number} is {job.state}"


def live(bench: Bench) -> dict[str | None, Instance]:
    return {item.node: item for item in bench.cloud.live()}
