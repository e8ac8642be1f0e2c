"""Protected mode: five failures start it, and one success ends it.

Probes test whether the pool works again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from slurmplugins.model.instance import BootFailure, BootResults, EndCause
from slurmplugins.model.launch import JobLaunch, JobRequest, NodeRequest
from slurmplugins.power_save import circuit_breaker
from slurmplugins.power_save.circuit_breaker import Record
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler import console_logs
from slurmplugins.reconciler.run import run_pass
from slurmplugins.system.log_events import LogEvent
from tests.fakes.engine import Bench

if TYPE_CHECKING:
    from pathlib import Path

G = hostlist.expand("gpu-[001-008]")
C = hostlist.expand("cpu-[1-4]")
NOW = 1_000_000.0


def failed(count: int, start: int = 0, pool: str = "gpu") -> BootResults:
    return BootResults(
        tuple(
            BootFailure(f"i-{number}", "gpu-001", pool, "it did not come up", NOW, NOW - 240)
            for number in range(start, start + count)
        )
    )


def protected(probes: int = 0) -> Record:
    record = circuit_breaker.record_boots(Record(), failed(5), NOW)
    for number in range(probes):
        record = circuit_breaker.record_boots(record, failed(1, 10 + number), NOW)
    return record


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def job(bench: Bench, number: int, nodes: tuple[hostlist.NodeName, ...]) -> JobLaunch:
    pool = bench.config.pools[bench.config.pool_by_node[nodes[0]]]
    return JobLaunch(number, (NodeRequest(number, nodes, pool),), nodes)


def test_the_fifth_boot_failure_opens_the_circuit_breaker():
    record = circuit_breaker.record_boots(Record(), failed(4), NOW)
    assert not record.pools["gpu"].protected
    record = circuit_breaker.record_boots(record, failed(1, 4), NOW)
    assert record.pools["gpu"].protected
    assert record.pools["gpu"].retry_at == NOW + 600


@pytest.mark.parametrize("count", [4, 10_000])
def test_an_instance_is_counted_once_however_often_it_is_seen(count: int):
    record = circuit_breaker.record_boots(Record(), failed(count), NOW)
    assert circuit_breaker.record_boots(record, failed(count), NOW) == record
    assert circuit_breaker.record_boots(record, failed(count), NOW + 3 * 3600) == record


def test_an_instance_that_looks_failed_again_while_ec2_lists_it_is_not_counted_again():
    record = circuit_breaker.record_boots(Record(), failed(4), NOW)
    later = circuit_breaker.record_boots(record, BootResults(), NOW + 3600)
    assert circuit_breaker.record_boots(later, failed(4), NOW + 3615).pools == record.pools


@pytest.mark.parametrize("set_by", [0.0, -86_400.0, 86_400.0])
def test_instances_that_ec2_lists_no_more_are_forgotten(set_by: float):
    record = circuit_breaker.record_boots(Record(), failed(4), NOW)
    assert circuit_breaker.record_boots(record, BootResults(), NOW + set_by + 7200).counted == {}


def test_a_success_forgets_every_failure():
    record = circuit_breaker.record_boots(Record(), failed(4), NOW)
    assert (
        circuit_breaker.record_boots(record, BootResults(healthy_until={"gpu": NOW}), NOW).pools
        == {}
    )


def test_a_registration_among_boot_failures_keeps_the_pool_unprotected():
    boots = BootResults(failed(9).failures, {"gpu": NOW})
    assert circuit_breaker.record_boots(Record(), boots, NOW).pools == {}


def test_a_node_that_came_up_long_before_the_failures_keeps_nothing_open():
    boots = BootResults(failed(5).failures, {"gpu": NOW - 3600})
    record = circuit_breaker.record_boots(Record(), boots, NOW)
    assert record.pools["gpu"].protected
    assert circuit_breaker.record_boots(record, boots, NOW) == record


@pytest.mark.parametrize(
    ("probes", "pause"), [(0, 600), (1, 1200), (2, 2400), (3, 3600), (9, 3600), (1100, 3600)]
)
def test_each_failed_probe_doubles_the_pause_up_to_an_hour(probes: int, pause: float):
    assert protected(probes).pools["gpu"].retry_at == NOW + pause


def test_a_protected_pool_launches_nothing_and_says_when_it_will(bench: Bench):
    screened = circuit_breaker.admit(protected(), [job(bench, 7, G[:2])], NOW, 180)
    assert screened.permitted == ()
    (refused,) = screened.refusals
    assert (refused.job, refused.nodes, refused.reason_code) == (7, G[:2], "pool-protected")
    assert "5 instances in a row did not register; next try" in refused.message


def test_other_pools_are_not_concerned(bench: Bench):
    other = job(bench, 8, C[:1])
    assert circuit_breaker.admit(protected(), [other], NOW, 180).permitted == (other,)


def test_after_the_pause_the_smallest_job_alone_is_let_through(bench: Bench):
    jobs = [job(bench, 7, G[:4]), job(bench, 8, G[4:5]), job(bench, 9, G[5:7])]
    screened = circuit_breaker.admit(protected(), jobs, NOW + 600, 180)
    assert [item.job for item in screened.permitted] == [8]
    again = circuit_breaker.admit(screened.record, jobs[:1], NOW + 601, 180)
    assert again.permitted == (), "the probe is under way"
    assert circuit_breaker.admit(screened.record, jobs[:1], NOW + 780, 180).permitted == (jobs[0],)


def test_a_clock_that_is_set_back_prolongs_no_protection(bench: Bench):
    """Admit jobs after the clock is set back by an hour.

    A probe starts at once. It is the only one until its nodes must have registered.
    """
    jobs = [job(bench, 7, G[:2]), job(bench, 8, G[2:4])]
    earlier = NOW - 3600
    screened = circuit_breaker.admit(protected(), jobs, earlier, 180)
    assert screened.permitted == (jobs[0],)
    assert circuit_breaker.admit(screened.record, jobs, earlier + 179, 180).permitted == ()
    assert circuit_breaker.admit(screened.record, jobs, earlier + 180, 180).permitted == (jobs[0],)


def test_a_probe_that_may_take_longer_than_any_pause_is_waited_for(bench: Bench):
    jobs = [job(bench, 7, G[:2])]
    screened = circuit_breaker.admit(protected(), jobs, NOW + 600, 7200)
    assert circuit_breaker.admit(screened.record, jobs, NOW + 600, 7200).permitted == ()


def test_a_damaged_state_file_leaves_no_pool_protected(tmp_path: Path):
    for text in (
        "",
        "{",
        "[]",
        '{"pools": {"gpu": 3}, "counted": {}}',
        '{"pools": {}, "counted": []}',
    ):
        (tmp_path / "protection.json").write_text(text)
        assert circuit_breaker.load(tmp_path) == Record()


def test_the_record_survives_its_file(tmp_path: Path):
    circuit_breaker.update(tmp_path, failed(5), NOW)
    assert circuit_breaker.load(tmp_path) == protected()


# The whole engine


def never_comes_up(bench: Bench, number: int, nodes: tuple[hostlist.NodeName, ...]) -> None:
    """Launch a job whose nodes never register, until its boot fails."""
    resume(bench.engine, [bench.slurm.start(number, nodes)])
    for _ in range(16):
        bench.clock.advance(15)
        bench.slurm.tick()
        dead, bench.slurm.resume_failed = bench.slurm.resume_failed, []
        if dead:
            suspend(bench.engine, dead, EndCause.BOOT_FAILED)
        gone, bench.slurm.suspended = bench.slurm.suspended, []
        if gone:
            suspend(bench.engine, gone, EndCause.SUSPEND)
        run_pass(bench.engine)


def test_a_pool_whose_nodes_never_register_launches_nothing_until_a_probe_succeeds(bench: Bench):
    never_comes_up(bench, 7, G[:5])
    assert len(bench.events(LogEvent.PROTECTED_MODE_ENTERED)) == 1
    launches = len(bench.cloud.requests)
    resume(bench.engine, [bench.slurm.start(8, G[:1])])
    assert len(bench.cloud.requests) == launches
    assert bench.slurm.state[G[0]].reason == "toolkit: pool-protected"
    assert "next try" in bench.slurm.queue[8].comment
    bench.clock.advance(600)
    bench.slurm.tick()
    suspend(bench.engine, G[:1], EndCause.SUSPEND)
    run_pass(bench.engine)
    resume(bench.engine, [bench.slurm.start(9, G[5:6])])
    assert len(bench.cloud.requests) == launches + 1
    bench.clock.advance(10)
    bench.boot()
    run_pass(bench.engine)
    assert len(bench.events(LogEvent.PROTECTED_MODE_ENDED)) == 1
    assert circuit_breaker.load(bench.engine.state).pools == {}


def test_an_adopted_instance_of_a_job_in_a_protected_pool_is_terminated(bench: Bench):
    ask = bench.slurm.start(7, G[:2])
    resume(bench.engine, [JobRequest(7, G[:1])])
    circuit_breaker.update(bench.engine.state, failed(5), bench.clock.now())
    resume(bench.engine, [ask])
    assert bench.cloud.live() == []
    assert bench.slurm.state[G[0]].reason == "toolkit: pool-protected"


def test_a_node_that_is_up_all_the_while_does_not_keep_a_broken_pool_open(bench: Bench):
    resume(bench.engine, [bench.slurm.start(1, G[7:])])
    bench.clock.advance(10)
    bench.boot()
    bench.clock.advance(3600)
    run_pass(bench.engine)
    never_comes_up(bench, 7, G[:5])
    assert circuit_breaker.load(bench.engine.state).pools["gpu"].protected
    assert not bench.events(LogEvent.PROTECTED_MODE_ENDED)


def test_instances_that_register_beside_boot_failures_keep_the_pool_unprotected(bench: Bench):
    """Let some instances of a pool register, and others never.

    A weak zone has this effect.
    """
    resume(bench.engine, [bench.slurm.start(1, G[5:])])
    bench.clock.advance(10)
    bench.boot()
    never_comes_up(bench, 7, G[:5])
    assert circuit_breaker.load(bench.engine.state).pools == {}


def test_the_console_of_an_instance_that_never_came_up_is_kept(bench: Bench):
    bench.cloud.consoles = {f"i-{number:017x}": f"line\nKernel panic {number}" for number in (1, 2)}
    never_comes_up(bench, 7, G[:1])
    assert console_logs.tail(bench.engine.state, f"i-{1:017x}") == ("line", "Kernel panic 1")
    assert bench.cloud.calls.count("console") == 1, "once is enough"


def test_an_interrupted_boot_is_not_the_pools_fault(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:5])])
    for item in bench.cloud.live():
        bench.cloud.interrupt(item.id)
    run_pass(bench.engine)
    assert circuit_breaker.load(bench.engine.state).pools == {}


def test_consoles_are_bounded_in_size_and_number(tmp_path: Path):
    for number in range(30):
        console_logs.save(tmp_path, f"i-{number:x}", "x" * 100_000)
    files = list((tmp_path / "consoles").iterdir())
    assert len(files) == 20
    assert max(path.stat().st_size for path in files) == 64 * 1024


def test_a_console_can_not_draw_on_the_terminal(tmp_path: Path):
    console_logs.save(tmp_path, "i-1", "\x1b[31mred\n\n")
    assert console_logs.tail(tmp_path, "i-1") == ("[31mred",)
    assert console_logs.tail(tmp_path, "../../etc/passwd") == ()
