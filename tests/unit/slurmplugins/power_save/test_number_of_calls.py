"""Numbers of calls for 200 and for 1,000 nodes.

A decision takes a fixed number of calls and no waiting. This law stands for "within 30 s at 1,000
nodes" on any host. EC2 and slurmctld need about the same time for a call with a thousand nodes as
with ten. Nothing else waits. Our own work grows with the number of nodes, not with its square.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
from collections import Counter
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import slurmplugins
from slurmplugins.head.assemble import at_ec2s_pace
from slurmplugins.launch.batching import MAX_JOB_BATCH
from slurmplugins.model.hostlist import expand
from slurmplugins.model.instance import EndCause
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.recheck import SNAPSHOT_SECONDS
from slurmplugins.reconciler.run import run_pass
from tests.fakes.boundaries import watch
from tests.fakes.engine import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

PERIOD = 15.0
"""Period of the reconcile timer, in seconds."""

TIMER = "ansible/roles/burst/files/head/slurm-reconcile.timer"

OURS = str(Path(slurmplugins.__file__).parent)


class Work:
    """A counter of the lines of our code that run, each time that they run.

    It counts on all threads. A turn of a loop in Python counts, whether it calls something or
    compares only. A loop inside C, such as `x in list`, does not.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace(), threading.gettrace()  # of a debugger, or of coverage
        threading.settrace(self._event)
        sys.settrace(self._event)
        try:
            yield
        finally:
            sys.settrace(before[0])
            threading.settrace(before[1])

    def _event(self, frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            next(self._numbers)
        return self._event

    def total(self) -> int:
        return next(self._numbers)


class Counted:
    """A cluster of `count` nodes whose programs' calls are counted.

    The calls are those to EC2 and to slurmctld.
    """

    def __init__(self, place: Path, count: int) -> None:
        place.mkdir()
        hostlist = f"gpu-[0001-{count:04d}]"
        self.nodes = expand(hostlist)
        self.bench = Bench(place, nodes=hostlist)
        self.calls: Counter[str] = Counter()
        engine = self.bench.engine
        paced = at_ec2s_pace(engine.cloud, engine.config, engine.clock)
        self.engine = watch(replace(engine, cloud=paced), self._passed)

    def _passed(self, place: str) -> None:
        name, _, what = place.partition(": ")
        if what == "done" and name.startswith(("cloud.", "slurm.")):
            self.calls[name] += 1

    def start(self) -> None:
        """Run one job on all nodes, and count none of its calls."""
        self.launch()
        self.calls.clear()
        self.bench.clock.slept.clear()

    def launch(self) -> None:
        resume(self.engine, [self.bench.slurm.start(7, self.nodes)])
        self.bench.clock.advance(10)
        self.bench.boot()
        run_pass(self.engine)


def test_the_timer_starts_a_pass_as_often_as_is_counted_here():
    path = Path(slurmplugins.__file__).parents[1] / TIMER
    timer = ConfigParser()
    timer.read(path)
    assert float(timer["Timer"]["OnUnitInactiveSec"]) == PERIOD == SNAPSHOT_SECONDS
    assert float(timer["Timer"]["AccuracySec"]) <= 1


def launched(cluster: Counted) -> int:
    """Run one job from no instance until each node has registered."""
    cluster.launch()
    return 1


def interrupted(cluster: Counted) -> int:
    """Interrupt every second instance.

    Returns the number of passes until their nodes are given back.
    """
    lost = cluster.bench.cloud.live()[::2]
    for item in lost:
        cluster.bench.cloud.interrupt(item.id)
    for number in range(1, 5):
        cluster.bench.clock.advance(PERIOD)
        run_pass(cluster.engine)
        state = cluster.bench.slurm.state
        if all("DOWN" in state[str(item.node)].flags for item in lost):
            return number
    raise AssertionError("not decided within a minute")


def let_go(cluster: Counted) -> int:
    """Power all nodes down and let suspend terminate their instances."""
    slurm = cluster.bench.slurm
    slurm.finish(7)
    slurm.power_down(cluster.nodes)
    slurm.tick()
    suspend(cluster.engine, slurm.suspended, EndCause.SUSPEND)
    assert cluster.bench.cloud.live() == []
    return 1


@pytest.mark.parametrize("decide", [launched, interrupted, let_go])
def test_a_thousand_nodes_are_decided_in_the_calls_of_two_hundred_and_without_waiting(
    tmp_path: Path, decide
):
    """Compare the calls for 200 and for 1,000 nodes.

    Terminations go in batches of 200. Launches go in batches of MAX_JOB_BATCH, and the addresses of
    each batch are told as it comes. Each other action is one call, for any number of nodes.
    """
    found = []
    for count in (200, 1000):
        cluster = Counted(tmp_path / str(count), count)
        if decide is not launched:
            cluster.start()
        assert decide(cluster) == 1
        assert cluster.bench.clock.slept == []
        ends = cluster.calls.pop("cloud.terminate", 0)
        assert ends <= count / 200
        batches = math.ceil(count / MAX_JOB_BATCH)
        for name in ("cloud.launch", "slurm.assign"):
            assert cluster.calls.pop(name, 0) == (batches if decide is launched else 0)
        found.append(cluster.calls)
    assert found[0] == found[1]


PAIRS = """
def pairs(nodes):
    for first in nodes:
        for second in nodes:
            if first == second:
                pass

def comprehension(nodes):
    return [first for first in nodes for second in nodes if first == second]
"""


@pytest.mark.parametrize("name", ["pairs", "comprehension"])
def test_the_count_of_work_sees_a_loop_over_all_pairs_that_calls_nothing(name: str):
    program: dict[str, Callable[[range], object]] = {}
    exec(compile(PAIRS, f"{OURS}/pairs.py", "exec"), program)  # noqa: S102 - a program as if of ours
    took = []
    for count in (20, 100):
        work = Work()
        with work.counted():
            program[name](range(count))
        took.append(work.total())
    assert took[1] > 20 * took[0]


@pytest.mark.parametrize("decide", [launched, interrupted, let_go])
def test_five_times_the_nodes_are_at_most_six_times_the_work(tmp_path: Path, decide):
    """Compare the work for 200 and for 1,000 nodes.

    A pass that compares all nodes with all would do twenty-five times as much.
    """
    took = []
    for count in (200, 1000):
        cluster, work = Counted(tmp_path / str(count), count), Work()
        if decide is not launched:
            cluster.start()
        with work.counted():
            decide(cluster)
        took.append(work.total())
    assert took[0] > 200
    assert took[1] <= 6 * took[0], took
