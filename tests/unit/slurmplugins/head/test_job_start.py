"""The prolog of a job, which waits for the job's nodes.

It ends when the nodes are up, and never keeps the job from starting.
"""

import pytest

from slurmplugins import prolog
from slurmplugins.config import burst as burst_config
from slurmplugins.head import job_start
from slurmplugins.model.hostlist import expand
from tests.fakes.clock import FakeClock
from tests.fakes.engine import burst
from tests.fakes.slurm import FakeSlurm

NODES = expand("gpu-[001-002]")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def slurm(clock):
    fake = FakeSlurm(clock)
    fake.define(NODES)
    return fake


class Awaited(FakeSlurm):
    """A slurmctld that runs an action at its n-th query of nodes."""

    def __init__(self, slurm, moments) -> None:
        super().__init__(slurm.clock, state=slurm.state)
        self.moments = moments
        self.asked = 0

    def nodes(self, names=None):
        self.asked += 1
        self.moments.get(self.asked, lambda: None)()
        return super().nodes(names)


def flags(slurm, node, *states):
    slurm.state[node].flags = {*states, "CLOUD"}


def test_it_ends_when_the_last_node_is_up(slurm, clock):
    flags(slurm, NODES[0], "ALLOCATED")
    flags(slurm, NODES[1], "ALLOCATED", "POWERING_UP")
    awaited = Awaited(slurm, {4: lambda: flags(slurm, NODES[1], "ALLOCATED")})
    assert job_start.wait_for_nodes(awaited, clock, NODES, 2.0, 180.0)
    assert awaited.asked == 4
    assert clock.monotonic() == pytest.approx(FakeClock().monotonic() + 6.0)


def test_a_node_that_slurm_has_not_begun_to_resume_is_waited_for(slurm, clock):
    for node in NODES:
        flags(slurm, node, "ALLOCATED", "POWERED_DOWN")
    began = clock.monotonic()
    assert not job_start.wait_for_nodes(slurm, clock, NODES, 2.0, 10.0)
    assert clock.monotonic() - began == 10.0


@pytest.mark.parametrize("lost", [("DOWN", "POWERED_DOWN"), ("IDLE", "POWERED_DOWN"), ("IDLE",)])
def test_it_ends_when_a_node_is_not_the_jobs_any_more(slurm, clock, lost):
    flags(slurm, NODES[0], "ALLOCATED", "POWERING_UP")
    flags(slurm, NODES[1], *lost)
    began = clock.monotonic()
    assert not job_start.wait_for_nodes(slurm, clock, NODES, 2.0, 180.0)
    assert clock.monotonic() == began


def test_it_gives_up_after_the_resume_timeout(slurm, clock):
    for node in NODES:
        flags(slurm, node, "ALLOCATED", "POWERING_UP")
    began = clock.monotonic()
    assert not job_start.wait_for_nodes(slurm, clock, NODES, 5.0, 180.0)
    assert clock.monotonic() - began == 180.0


def test_a_slurmctld_that_does_not_answer_is_asked_again(slurm, clock):
    for node in NODES:
        flags(slurm, node, "ALLOCATED")
    awaited = Awaited(slurm, {})
    awaited.unreachable = True
    awaited.moments[3] = lambda: setattr(awaited, "unreachable", False)
    assert job_start.wait_for_nodes(awaited, clock, NODES, 1.0, 180.0)


def test_nodes_that_are_not_ours_are_not_waited_for():
    assert job_start.cloud_nodes("rack-[1-4]", burst_config.parse(burst())) == ()
    assert job_start.cloud_nodes("", burst_config.parse(burst())) == ()


def test_places_are_few_and_free_again_when_their_holder_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(job_start, "SLOTS", 2)
    held = [job_start.acquire_slot(tmp_path / "prolog") for _ in range(3)]
    assert held == [0, 1, None]


def test_all_places_together_ask_ten_times_a_second_at_most():
    assert sum(1 / job_start.poll_period(place, 1) for place in range(job_start.SLOTS)) < 10


def test_it_ends_well_whatever_is_wrong(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(prolog.paths, "BURST", tmp_path / "missing.json")
    with pytest.raises(SystemExit) as ended:
        prolog.main()
    assert ended.value.code == 0
    assert "slurm-prolog" in capsys.readouterr().err
