"""The node agent, from interruption notice to drained node and stop requests."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from slurmplugins import node_agent
from slurmplugins.errors import SlurmError
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Kind, Notice
from slurmplugins.node import agent, imds, running_jobs
from slurmplugins.node.agent import Agent
from slurmplugins.slurm import agent_requests
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.metadata import FakeMetadata
from tests.fakes.runner import FakeRunner
from tests.fakes.slurm import FakeSlurm
from toolkit.training.run_folder import stop_forecast

if TYPE_CHECKING:
    from pathlib import Path

NODE = hostlist.parse("gpu-001")
NOTICE = '{"action": "terminate", "time": "2026-11-18T12:35:20Z"}'
DEADLINE = 1_795_005_320.0


class Stage:
    def __init__(self, tmp_path: Path) -> None:
        self.clock = FakeClock()
        self.slurm = FakeSlurm(self.clock)
        self.slurm.define([NODE])
        self.slurm.start(7, [NODE])
        self.slurm.register(NODE, "i-1")
        self.slurm.queue[7].restarts = 2
        self.metadata = FakeMetadata()
        self.runner = FakeRunner()
        self.lines: list[str] = []
        self.stop = tmp_path / "stop"
        self.stop.mkdir()
        self.proc = tmp_path / "proc"
        self.agent = Agent(
            node=NODE,
            instance_id="i-1",
            metadata=self.metadata,
            slurm=self.slurm,
            read_attempts=lambda: running_jobs.attempts(
                self.slurm, self.runner, "/usr/bin", NODE, self.proc
            ),
            stop_directory=self.stop,
            clock=self.clock,
            log=Log(self.lines.append, self.clock),
        )

    def process(self, pid: int, environment: bytes) -> None:
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "environ").write_bytes(environment)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_nothing_happens_without_a_notice(stage: Stage):
    stage.agent.poll()
    assert stage.slurm.writes == []
    assert list(stage.stop.iterdir()) == []


def test_a_notice_drains_the_node_and_asks_its_job_to_stop(stage: Stage):
    stage.metadata.values["spot/instance-action"] = NOTICE
    stage.agent.poll()
    assert stage.slurm.state[NODE].reason == "toolkit: spot interruption"
    assert json.loads((stage.stop / "7.2.json").read_text()) == {
        "job_id": 7,
        "restart_count": 2,
        "cause": "spot-interruption",
        "node": "gpu-001",
        "instance_id": "i-1",
        "deadline": DEADLINE,
        "at": stage.clock.now(),
    }
    assert (stage.stop / "7.2.json").stat().st_mode & 0o777 == 0o644


def test_a_notice_is_acted_upon_once(stage: Stage):
    stage.metadata.values["spot/instance-action"] = NOTICE
    for _ in range(3):
        stage.agent.poll()
    assert stage.slurm.writes == ["drain gpu-001"]


def test_the_job_is_asked_to_stop_although_slurmctld_is_silent(stage: Stage):
    stage.metadata.values["spot/instance-action"] = NOTICE
    stage.slurm.unreachable = True
    listing = "PID      JOBID    STEPID   LOCALID GLOBALID\n41       7        batch    0       0\n"
    stage.runner.answer("/usr/bin/scontrol", "listpids", stdout=listing)
    stage.process(41, b"HOME=/home/ada\0SLURM_RESTART_COUNT=2\0SLURM_JOB_ID=7\0")
    stage.agent.poll()
    assert (stage.stop / "7.2.json").exists()
    stage.slurm.unreachable = False
    stage.agent.poll()
    assert stage.slurm.writes == ["drain gpu-001"]


def test_a_notice_stops_no_job_of_another_node_also_where_squeue_tells_of_all(stage: Stage):
    """Answer squeue with the jobs of several nodes.

    Before 24.05.1, squeue's JSON does so, whichever node is asked for.
    """
    jobs = [
        {"job_id": job, "job_state": ["RUNNING"], "restart_cnt": 2, "nodes": nodes}
        for job, nodes in ((7, "gpu-[001-002]"), (8, "gpu-[002-004]"))
    ]
    stage.runner.answer("/usr/bin/squeue", stdout=json.dumps({"jobs": jobs}))
    slurm = ScontrolSlurm(stage.runner, "/usr/bin")
    assert running_jobs.attempts(slurm, stage.runner, "/usr/bin", NODE, stage.proc) == {(7, 2)}


@pytest.mark.parametrize(("workers", "restart"), [(b"4", 4), (b"0", 0), (b"", 4)])
def test_the_attempt_is_the_workers_where_the_batch_script_has_another_jobs_environment(
    stage: Stage, workers: bytes, restart: int
):
    stage.slurm.unreachable = True
    listing = "PID JOBID\n41 7 batch 0 0\n42 7 0 0 0\n"
    stage.runner.answer("/usr/bin/scontrol", "listpids", stdout=listing)
    stage.process(41, b"SLURM_RESTART_COUNT=4\0")
    stage.process(42, b"SLURM_RESTART_COUNT=" + workers + b"\0")
    assert stage.agent.read_attempts() == {(7, restart)}


def test_a_user_can_not_name_another_job_in_an_environment(stage: Stage):
    stage.slurm.unreachable = True
    stage.runner.answer("/usr/bin/scontrol", "listpids", stdout="PID JOBID\n41 7 0 0 0\n")
    stage.process(41, b"SLURM_JOB_ID=99\0XSLURM_RESTART_COUNT=5\0SLURM_RESTART_COUNT=x\0")
    assert stage.agent.read_attempts() == {(7, 0)}


def test_the_agent_tries_again_when_the_nodes_jobs_can_not_be_read(stage: Stage):
    stage.metadata.values["spot/instance-action"] = NOTICE
    stage.slurm.unreachable = True
    stage.runner.answer("/usr/bin/scontrol", "listpids", stderr="no socket", returncode=1)
    stage.agent.poll()
    with pytest.raises(SlurmError):
        stage.agent.read_attempts()
    stage.slurm.unreachable = False
    stage.agent.poll()
    assert (stage.stop / "7.2.json").exists()


def test_a_stop_request_that_could_not_be_written_is_written_later(stage: Stage):
    stage.metadata.values["spot/instance-action"] = NOTICE
    stage.stop.rmdir()
    stage.agent.poll()
    assert stage.slurm.writes == ["drain gpu-001"]
    stage.stop.mkdir()
    stage.agent.poll()
    assert (stage.stop / "7.2.json").exists()


def test_a_silent_metadata_service_is_survived(stage: Stage):
    stage.metadata.broken = True
    stage.agent.poll()
    stage.metadata.broken = False
    stage.metadata.values["spot/instance-action"] = NOTICE
    stage.agent.poll()
    assert stage.agent.drained


def test_a_rebalance_recommendation_drains_and_lets_the_job_go_on(stage: Stage):
    stage.metadata.values["events/recommendations/rebalance"] = '{"noticeTime": "x"}'
    for _ in range(3):
        stage.agent.poll()
    assert stage.slurm.writes == ["drain gpu-001"]
    assert stage.slurm.state[NODE].reason == "toolkit: rebalance recommended"
    assert list(stage.stop.iterdir()) == []


def test_a_notice_after_a_rebalance_recommendation_is_the_reason_that_stays(stage: Stage):
    stage.metadata.values["events/recommendations/rebalance"] = "{}"
    stage.agent.poll()
    stage.metadata.values["spot/instance-action"] = NOTICE
    stage.agent.poll()
    assert stage.slurm.state[NODE].reason == "toolkit: spot interruption"
    assert (stage.stop / "7.2.json").exists()


def event(stage: Stage, seconds: float, **more: str) -> str:
    when = datetime.fromtimestamp(stage.clock.now() + seconds, UTC)
    return json.dumps(
        [
            {
                "NotBefore": when.strftime("%d %b %Y %H:%M:%S GMT"),
                "Code": "system-reboot",
                "EventId": "instance-event-1",
                "State": "active",
                **more,
            }
        ]
    )


def test_a_scheduled_event_drains_a_day_ahead_and_stops_jobs_ten_minutes_ahead(stage: Stage):
    stage.metadata.values["events/maintenance/scheduled"] = event(stage, 86_401)
    stage.agent.poll()
    assert stage.slurm.writes == []
    stage.clock.advance(60)
    stage.agent.poll()
    assert stage.slurm.state[NODE].reason == "toolkit: scheduled system-reboot"
    assert list(stage.stop.iterdir()) == []
    stage.clock.advance(86_341 - 600)
    stage.agent.poll()
    request = json.loads((stage.stop / "7.2.json").read_text())
    assert request["cause"] == "scheduled-event"
    assert request["deadline"] == pytest.approx(stage.clock.now() + 600, abs=1)


@pytest.mark.parametrize("state", ["completed", "canceled"])
def test_an_event_that_is_over_or_called_off_is_none(stage: Stage, state: str):
    stage.metadata.values["events/maintenance/scheduled"] = event(stage, 60, State=state)
    stage.agent.poll()
    assert stage.slurm.writes == []


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", "[3]"])
def test_events_that_can_not_be_read_are_none(stage: Stage, text: str):
    stage.metadata.values["events/maintenance/scheduled"] = text
    stage.agent.poll()
    assert stage.slurm.writes == []


def test_the_time_limits_leave_the_job_five_seconds_at_most():
    assert agent.POLL_SECONDS + agent.JOBS_SECONDS < 5
    assert agent.POLL_SECONDS + agent.DRAIN_SECONDS <= 5


def test_a_runs_stop_forecast_knows_the_agents_time_limits():
    """Compare the stop forecast's constant with the agent's time limits.

    toolkit.training is shipped without slurmplugins, so it has a copy.
    """
    assert stop_forecast.AGENT_SECONDS == agent.POLL_SECONDS + imds.TIMEOUT + agent.JOBS_SECONDS


def test_stop_requests_of_long_ago_are_forgotten(stage: Stage):
    for name, age in (("1.0.json", 90_000), ("2.0.json", 10)):
        path = stage.stop / name
        path.write_text("{}")
        os.utime(path, (stage.clock.now() - age,) * 2)
    agent_requests.remove_old_requests(stage.stop, stage.clock.now() - node_agent.OLD_REQUEST)
    assert [path.name for path in stage.stop.iterdir()] == ["2.0.json"]
    agent_requests.remove_old_requests(stage.stop / "absent", stage.clock.now())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"time": 3}', '{"time": "soon"}'])
def test_a_notice_that_can_not_be_read_is_still_a_notice(stage: Stage, text: str):
    stage.metadata.values["spot/instance-action"] = text
    stage.agent.poll()
    expected = Notice(Kind.SPOT, "terminate", stage.clock.now() + 120)
    assert stage.agent.notice == expected
