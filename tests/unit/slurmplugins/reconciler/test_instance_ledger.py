"""The instance ledger with a bucket that fails or is slow.

The ledger is for people. So the pass goes on in any case, and forgets nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.model import hostlist
from slurmplugins.power_save.resume import resume
from slurmplugins.reconciler.instance_ledger import WRITE_SECONDS, WRITERS
from slurmplugins.reconciler.pass_state import PassState
from slurmplugins.reconciler.run import run_pass
from tests.fakes.boundaries import Killed
from tests.fakes.engine import Bench, burst

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANY = hostlist.expand("gpu-[001-200]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench with two hundred instances that no pass has seen.

    One of them has vanished from EC2's list without evidence of its end.
    """
    settings = burst("gpu-[001-200]")
    bench = Bench(tmp_path, pools=settings["pools"])
    resume(bench.engine, [bench.slurm.start(7, MANY[:1]), bench.slurm.start(8, MANY[1:])])
    bench.clock.advance(130)
    bench.boot()
    gone = next(item for item in bench.cloud.live() if item.node == MANY[0])
    del bench.cloud.machines[gone.id]
    bench.slurm.silence(MANY[:1])
    return bench


def passes(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.clock.advance(15)
        bench.slurm.tick()
        try:
            run_pass(bench.engine)
        except Killed:
            bench.restart()


def creating(bench: Bench, before: Callable[[], None]) -> None:
    """Call `before` ahead of the first write of each entry."""
    inner = bench.store.create

    def create(key: str, value: dict[str, object]) -> bool:
        before()
        return inner(key, value)

    bench.store.create = create  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("written", [0, 1, 50])
def test_a_pass_killed_anywhere_in_the_ledger_has_remembered_what_it_saw(
    bench: Bench, written: int
):
    def dies() -> None:
        if bench.store.puts >= written:
            raise Killed

    creating(bench, dies)
    passes(bench, 1)
    assert set(PassState.load(bench.engine.state).without_instance_since) == {MANY[0]}
    passes(bench, 5)
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_bucket_that_does_not_answer_is_asked_once_a_pass_and_each_writer(bench: Bench):
    asked = [0]

    def silent() -> None:
        asked[0] += 1
        bench.clock.advance(15)
        raise error_codes.error("Unreachable", "no answer")

    creating(bench, silent)
    passes(bench, 1)
    assert 1 <= asked[0] <= WRITERS
    passes(bench, 5)
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_slow_bucket_holds_a_pass_up_for_its_seconds_and_has_all_entries_in_the_end(bench: Bench):
    creating(bench, lambda: bench.clock.advance(1))
    began = bench.clock.monotonic()
    passes(bench, 1)
    assert bench.clock.monotonic() - began <= 15 + WRITE_SECONDS + WRITERS
    assert 0 < len(bench.store.objects) < 199
    passes(bench, 8)
    assert len(bench.store.objects) == 199


def test_an_entry_that_is_refused_costs_the_others_nothing(bench: Bench):
    def refused() -> None:
        if not bench.store.puts:
            bench.store.puts = 1
            raise error_codes.error("AccessDenied", "no")

    creating(bench, refused)
    passes(bench, 1)
    assert len(bench.store.objects) == 198
