"""What it takes to give nodes back and to tell jobs why: of slurmctld, and of those who wait."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins import bursting, names
from slurmplugins.errors import SlurmUnreachable
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench, burst

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.model import JobAsk

G = names.expand("gpu-[001-064]")
NOWHERE = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), "InsufficientInstanceCapacity")
WRITES = ("down", "power_down", "hold", "comment")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    pools: dict[str, Any] = burst(nodes="gpu-[001-064]")["pools"]  # type: ignore[assignment]
    return Bench(tmp_path, pools=pools)


def counted(bench: Bench, *, silent: bool = False) -> Counter[str]:
    """How often slurmctld is told something from now on; where it is `silent`, in vain."""
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
def test_a_slurmctld_that_takes_nothing_is_told_as_often_for_many_nodes_and_jobs_as_for_one(
    bench: Bench, code: str, size: int
):
    calls = counted(bench, silent=True)
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), code)
    asks = [bench.slurm.start(job, G[job * size : job * size + size]) for job in range(1, 8)]
    bursting.resume(bench.engine, asks)
    assert calls["down"] == calls["power_down"] == 1
    assert calls["hold"] + calls["comment"] == 1
    (left,) = bench.events("jobs not told")
    assert left["jobs"] == [ask.job for ask in asks]


def test_one_node_that_slurm_refuses_costs_few_calls_and_spoils_no_other(bench: Bench):
    bench.cloud.refusals = NOWHERE
    ask: JobAsk = bench.slurm.start(7, G)
    calls = counted(bench)
    bench.slurm.refuse = {G[20]}
    bursting.resume(bench.engine, [ask])
    assert all("DOWN" in bench.slurm.flags(node) for node in G if node != G[20])
    assert calls["down"] == calls["power_down"] == 13
