"""Give-back of nodes and the notification of their jobs.

slurmctld gets few calls for it, and no other job waits for it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import pytest

from slurmplugins.errors import SlurmUnreachable
from slurmplugins.launch import batching
from slurmplugins.model import hostlist
from slurmplugins.power_save.resume import resume
from slurmplugins.system.log_events import DECISIONS, LogEvent
from slurmplugins.system.workers import WorkerPool
from tests.fakes.boundaries import watch
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench, burst

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.model.launch import JobRequest, LaunchRequest, LaunchResult

G = hostlist.expand("gpu-[001-064]")
NOWHERE = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), "InsufficientInstanceCapacity")
WRITES = ("down", "power_down", "hold", "comment")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    pools: dict[str, Any] = burst(nodes="gpu-[001-064]")["pools"]  # type: ignore[assignment]
    return Bench(tmp_path, pools=pools)


def counted(bench: Bench, *, silent: bool = False) -> Counter[str]:
    """Count the calls that change slurmctld's state.

    With `silent`, each call fails after 60 seconds.
    """
    calls: Counter[str] = Counter()

    def wrap(verb: str) -> None:
        inner = getattr(bench.slurm, verb)

        def call(*given: object, **named: object) -> None:
            calls[verb] += 1
            if silent:
                bench.clock.advance(60)
                raise SlurmUnreachable("took longer than 60 s")
            inner(*given, **named)

        setattr(bench.slurm, verb, call)

    for verb in WRITES:
        wrap(verb)
    return calls


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded"])
@pytest.mark.parametrize("size", [1, 8])
def test_a_silent_slurmctld_is_called_as_often_for_many_nodes_and_jobs_as_for_one(
    bench: Bench, code: str, size: int
):
    calls = counted(bench, silent=True)
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), code)
    asks = [bench.slurm.start(job, G[job * size : job * size + size]) for job in range(1, 8)]
    resume(bench.engine, asks)
    assert calls["down"] == calls["power_down"] == 1
    assert calls["hold"] + calls["comment"] == 1
    (left,) = bench.events(LogEvent.JOBS_NOT_NOTIFIED)
    assert left["jobs"] == [ask.job for ask in asks]


def test_nodes_that_came_up_while_the_rest_was_searched_are_given_back_with_their_instances(
    bench: Bench,
):
    """Let two nodes register before the launch of the others fails.

    Their instances are terminated with them. Otherwise slurmctld would place jobs on nodes without
    an instance.
    """
    launch, calls = bench.cloud.launch, []

    def slowly(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        calls.append(request)
        if len(calls) == 1:
            return launch(request, intend)
        if len(calls) == 2:
            bench.clock.sleep(80)
            bench.boot()
        bench.cloud.refusals = NOWHERE
        return launch(request, intend)

    bench.cloud.launch = slowly  # type: ignore[method-assign]
    ask = bench.slurm.start(7, G[:4])
    with mock.patch.multiple(batching, MAX_SHARED_BATCH=2, MAX_JOB_BATCH=2):
        resume(bench.engine, [ask])
    assert bench.cloud.live() == []
    assert len(bench.cloud.machines) == 2
    assert all("POWER_DOWN" in bench.slurm.flags(node) for node in G[:4])
    assert bench.slurm.queue[7].state == "PENDING"


def test_one_node_that_slurm_refuses_costs_few_calls_and_spoils_no_other(bench: Bench):
    bench.cloud.refusals = NOWHERE
    ask: JobRequest = bench.slurm.start(7, G)
    calls = counted(bench)
    bench.slurm.refuse = {G[20]}
    resume(bench.engine, [ask])
    assert all("DOWN" in bench.slurm.flags(node) for node in G if node != G[20])
    assert calls["down"] == calls["power_down"] == 13


def protect(bench: Bench, pool: str) -> None:
    now = bench.clock.now()
    standing = {"failures": 5, "since": now, "retry_at": now + 600, "probes": 0, "last": []}
    record = {"pools": {pool: standing}, "counted": {}}
    (bench.engine.state / "protection.json").write_text(json.dumps(record))


def test_nodes_of_jobs_that_fail_go_down_at_once_and_no_launch_waits_until_the_jobs_are_told(
    bench: Bench,
):
    protect(bench, "gpu")
    asks = [bench.slurm.start(job, [node]) for job, node in enumerate(G, 1)]
    asks.append(bench.slurm.start(99, hostlist.expand("cpu-[1-2]")))
    seen: list[tuple[bool, Counter[str]]] = []
    calls = counted(bench)

    def look(place: str) -> None:
        if place == "cloud.launch: about to":
            seen.append((all("DOWN" in bench.slurm.flags(node) for node in G), calls.copy()))

    resume(watch(bench.engine, look), asks)
    assert seen == [(True, Counter(down=1, power_down=1))]
    assert all("pool-protected" in bench.slurm.queue[job].comment for job in range(1, len(G) + 1))


BIG = [
    {"type": "p5.48xlarge", "capacity": "spot", "zone": zone, "price": "9"}
    for zone in ("us-east-1a", "us-east-1b")
]


@pytest.mark.parametrize(
    "still", ["slurm.down", "slurm.comment", "slurm.assign", "cloud.terminate"]
)
def test_no_launch_queue_waits_for_the_failed_jobs_of_another(tmp_path: Path, still: str):
    """Stop a failed job's give-back at the step `still`.

    The step begins while the other queue is at its first offering group. It ends only after the
    other queue has reached its second group.
    """
    pools: dict[str, Any] = burst()["pools"]  # type: ignore[assignment]
    pools["big"] = {**pools["gpu"], "nodes": "big-[1-2]", "offerings": BIG}
    bench = Bench(tmp_path, pools=pools)
    bench.cloud.refusals = {
        **NOWHERE,
        "spot:p5.48xlarge:us-east-1a": "InsufficientInstanceCapacity",
    }
    begun, on = Event(), Event()
    waits: list[bool] = []
    launch = bench.cloud.launch

    def at(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        if request.offering.key == "spot:p5.48xlarge:us-east-1a":
            waits.append(begun.wait(5))
        elif request.pool == "big":
            on.set()
        return launch(request, intend)

    def stand(place: str) -> None:
        if place == f"{still}: about to":
            begun.set()
            waits.append(on.wait(5))

    bench.cloud.launch = at  # type: ignore[method-assign]
    bench.engine = replace(bench.engine, workers=WorkerPool(8))
    cpu = hostlist.expand("cpu-[1-2]")
    asks = [
        bench.slurm.start(7, [G[0], cpu[0]]),
        bench.slurm.start(8, [cpu[1]]),
        bench.slurm.start(9, hostlist.expand("big-[1-2]")),
    ]
    resume(watch(bench.engine, stand), asks)
    assert len(waits) > 1
    assert all(waits)
    assert {item.node for item in bench.cloud.live()} == {cpu[1], *hostlist.expand("big-[1-2]")}
    assert bench.slurm.queue[7].comment


@pytest.mark.parametrize("workers", [1, 8])
def test_an_error_in_a_call_to_slurmctld_is_not_lost(bench: Bench, workers: int):
    bench.engine = replace(bench.engine, workers=WorkerPool(workers))

    def broken(_assignments: object) -> NoReturn:
        raise ValueError("our own mistake")

    bench.slurm.assign = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="our own mistake"):
        resume(bench.engine, [bench.slurm.start(7, G[:2])])


def test_of_nodes_that_slurm_does_not_speak_of_nobody_says_that_it_waits_for_them_no_more(
    bench: Bench,
):
    bench.cloud.refusals = NOWHERE
    ask = bench.slurm.start(7, G[:2])

    def deaf(_names: object = None) -> NoReturn:
        raise SlurmUnreachable("socket timed out")

    bench.slurm.nodes = deaf  # type: ignore[method-assign]
    resume(bench.engine, [ask])
    assert bench.events(LogEvent.NODES_NOT_AWAITED) == []
    (said,) = bench.events(LogEvent.NODES_NOT_GIVEN_BACK)
    assert (said["job"], said["nodes"], said["slug"]) == (7, "gpu-[001-002]", "no-capacity")
    assert said["event"] in DECISIONS


def test_each_action_on_many_nodes_is_one_line_of_the_decision_log(
    bench: Bench,
):
    bench.cloud.refusals = NOWHERE
    ask = bench.slurm.start(7, G)
    bench.slurm.refuse = {G[3]}
    resume(bench.engine, [ask])
    done = [(item["action"], item["nodes"]) for item in bench.events(LogEvent.ACTION_APPLIED)]
    assert done == [("MarkDown", "gpu-[001-064]"), ("PowerDown", "gpu-[001-064]")]
    assert {item["nodes"] for item in bench.events(LogEvent.ACTION_FAILED)} == {G[3]}


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_of_a_late_request_that_another_job_has_is_not_given_back(
    bench: Bench, answers: bool
):
    late = bench.slurm.start(7, G[:3])
    bench.slurm.start(8, G[1:2])
    bench.slurm.finish(7)
    bench.slurm.down(G[:1], "bad NIC")
    bench.slurm.power_down(G[:1])
    bench.slurm.tick()
    if not answers:

        def jobs(_nodes: object = None) -> NoReturn:
            raise SlurmUnreachable("socket timed out")

        bench.slurm.jobs = jobs  # type: ignore[method-assign]
    resume(bench.engine, [late])
    assert tuple(bench.slurm.queue[8].nodes) == G[1:2]
    assert "POWERING_UP" in bench.slurm.flags(G[1])
    assert ("DOWN" in bench.slurm.flags(G[2])) is answers
    assert bench.cloud.live() == []
