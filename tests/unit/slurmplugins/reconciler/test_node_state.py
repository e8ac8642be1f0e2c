"""Nodes whose registration is lost when slurmctld is killed.

Their jobs go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.config import burst as burst_config
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause, Instance, InstanceState, Lifecycle
from slurmplugins.model.node import Node
from slurmplugins.node.agent import RELOAD, Registrar
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.node_state import (
    REQUEST_INTERVAL,
    is_forgotten,
    next_requests,
    node_states,
)
from slurmplugins.reconciler.pass_state import PassState
from slurmplugins.reconciler.run import run_pass
from slurmplugins.reconciler.snapshot import RegistrationRequests, Snapshot
from slurmplugins.slurm import agent_requests
from slurmplugins.state.journal_view import JournalView
from slurmplugins.system.logger import Log
from tests.fakes.engine import Bench, burst
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from pathlib import Path

G = hostlist.expand("gpu-[001-002]")
JOB = 7
SAVED = pytest.mark.parametrize("saved", ["POWERING_UP", "POWERED_DOWN"])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench with two nodes up and a job on them."""
    made = Bench(tmp_path)
    resume(made.engine, [made.slurm.start(JOB, G)])
    made.clock.advance(10)
    made.boot()
    return made


def agents(bench: Bench) -> int:
    """Poll each node agent once; return the number of registrations."""
    registered = 0
    for instance in bench.cloud.live():
        runner = FakeRunner()
        node = str(instance.node)
        log = Log(bench.lines.append, bench.clock)
        Registrar(node, bench.engine.stop_requests, runner, log).poll()
        if runner.calls:
            bench.slurm.register(node, instance.id, instance.address, instance.launched_at)
            registered += 1
    return registered


def passes(bench: Bench, seconds: float, *, heard: bool = True) -> int:
    """Run reconcile every 15 seconds; return the number of registrations.

    slurmctld, its programs and the node agents run in between. Without `heard`, no agent runs.
    """
    registered = 0
    for _ in range(int(seconds // 15)):
        bench.clock.advance(15)
        bench.slurm.tick()
        suspended, bench.slurm.suspended = bench.slurm.suspended, []
        if suspended:
            suspend(bench.engine, suspended, EndCause.SUSPEND)
        run_pass(bench.engine)
        registered += agents(bench) if heard else 0
    return registered


@SAVED
def test_a_job_goes_on_where_it_is_when_slurmctld_forgets_its_nodes(bench: Bench, saved: str):
    instances = {instance.id for instance in bench.cloud.live()}
    bench.slurm.killed(G, saved=saved)
    assert passes(bench, 600) == len(G)
    assert {instance.id for instance in bench.cloud.live()} == instances
    job = bench.slurm.queue[JOB]
    assert (job.state, job.restarts, job.nodes) == ("RUNNING", 0, G)
    assert all(bench.slurm.flags(node) == {"ALLOCATED", "CLOUD"} for node in G)


@SAVED
def test_a_node_that_registers_again_is_asked_for_nothing_more(bench: Bench, saved: str):
    bench.slurm.killed(G, saved=saved)
    passes(bench, 300)
    assert PassState.load(bench.engine.state).registration_requests == {}
    assert not list(bench.engine.stop_requests.iterdir())


@SAVED
def test_a_job_whose_slurmd_never_registers_again_is_requeued_within_resume_timeout(
    bench: Bench, saved: str
):
    bench.slurm.killed(G, saved=saved)
    passes(bench, bench.config.resume_timeout + 45, heard=False)
    job = bench.slurm.queue[JOB]
    assert (job.state, job.restarts) == ("PENDING", 1)
    passes(bench, 120, heard=False)
    assert not bench.cloud.live()


def test_a_job_on_a_node_without_instance_that_slurm_takes_for_powered_down_comes_back(
    bench: Bench,
):
    bench.slurm.killed(G, saved="POWERED_DOWN")
    for instance in bench.cloud.live():
        bench.cloud.interrupt(instance.id)
    passes(bench, bench.config.resume_timeout + 45)
    assert bench.slurm.queue[JOB].state == "PENDING"


def test_a_node_is_asked_once_a_minute(bench: Bench):
    bench.slurm.killed(G[:1], saved="POWERED_DOWN")
    asked = []
    for _ in range(8):
        passes(bench, 15, heard=False)
        asked.append(agent_requests.read_registration_request(bench.engine.stop_requests, G[0]))
    assert len(set(asked)) == 2


def test_a_node_that_boots_is_left_to_boot(bench: Bench):
    bench.slurm.finish(JOB)
    resume(bench.engine, [bench.slurm.start(8, hostlist.expand("gpu-[003-004]"))])
    bench.clock.advance(15)
    run_pass(bench.engine)
    assert not list(bench.engine.stop_requests.iterdir())


def test_a_clock_that_is_set_back_delays_no_request(bench: Bench):
    bench.slurm.killed(G[:1], saved="POWERED_DOWN")
    ahead = bench.clock.now() + 3600
    PassState(registration_requests={G[0]: RegistrationRequests(ahead, ahead)}).save(
        bench.engine.state
    )
    run_pass(bench.engine)
    assert agent_requests.read_registration_request(bench.engine.stop_requests, G[0])


NOW = 1_795_000_000.0
SILENT = {"CLOUD", "POWERING_UP", "NOT_RESPONDING"}


def a_snapshot(flags: set[str], **more: Any) -> Snapshot:
    """Return two nodes with these flags, each with an old instance."""
    instances = tuple(
        Instance(
            id=f"i-{name}",
            state=InstanceState.RUNNING,
            role="compute",
            node=name,
            pool="gpu",
            partition="spot",
            attempt="a",
            type="g5.xlarge",
            zone="us-east-1a",
            lifecycle=Lifecycle.SPOT,
            address="",
            price="",
            launched_at=NOW - 600,
        )
        for name in G
    )
    nodes = {name: Node(name, frozenset(flags), "", f"i-{name}") for name in G}
    given: dict[str, Any] = {"journal": JournalView(), **more}
    config = burst_config.parse(burst())
    return Snapshot(config=config, instances=instances, nodes=nodes, now=NOW, **given)


@pytest.mark.parametrize(
    ("flags", "forgotten"),
    [
        ({"ALLOCATED"}, True),
        ({"DOWN"}, False),
        ({"ALLOCATED", "POWER_DOWN"}, False),
        ({"ALLOCATED", "POWERING_DOWN"}, False),
    ],
)
def test_a_node_that_slurmctld_has_given_up_is_not_forgotten(flags: set[str], forgotten: bool):
    given = a_snapshot(SILENT | flags)
    assert [is_forgotten(given, state) for state in node_states(given)] == [forgotten] * 2


def test_a_node_that_a_program_has_claimed_hides_no_other_node():
    given = a_snapshot({"ALLOCATED"}, journal=JournalView(claimed_nodes=frozenset(G[:1])))
    assert [state.name for state in node_states(given)] == [G[1]]


@pytest.mark.parametrize(
    ("age", "last"), [(0.0, NOW), (REQUEST_INTERVAL - 1, NOW - 59), (REQUEST_INTERVAL, NOW)]
)
def test_a_request_is_repeated_after_its_interval_and_keeps_its_first_time(age: float, last: float):
    first = NOW - 120
    requests = {G[0]: RegistrationRequests(first, NOW - age)}
    given = a_snapshot(SILENT, registration_requests=requests)
    assert next_requests(given, G[0]) == RegistrationRequests(first, last)


class TestRegistrar:
    @pytest.fixture
    def runner(self) -> FakeRunner:
        return FakeRunner()

    @pytest.fixture
    def registrar(self, tmp_path: Path, bench: Bench, runner: FakeRunner) -> Registrar:
        place = tmp_path / "requests"
        place.mkdir()
        return Registrar("gpu-001", place, runner, Log(bench.lines.append, bench.clock))

    def test_slurmd_is_reloaded_once_for_each_request(self, registrar, runner):
        for at in (1.0, 2.0):
            agent_requests.request_registration(registrar.directory, "gpu-001", at)
            registrar.poll()
            registrar.poll()
        assert runner.commands == [list(RELOAD)] * 2

    def test_another_nodes_request_is_not_heard(self, registrar, runner):
        agent_requests.request_registration(registrar.directory, "gpu-002", 1.0)
        registrar.poll()
        assert runner.calls == []

    def test_a_request_that_can_not_be_removed_is_heard_once(self, registrar, runner, monkeypatch):
        agent_requests.request_registration(registrar.directory, "gpu-001", 1.0)
        monkeypatch.setattr(agent_requests, "remove_registration_request", lambda *_: None)
        registrar.poll()
        registrar.poll()
        assert len(runner.calls) == 1
