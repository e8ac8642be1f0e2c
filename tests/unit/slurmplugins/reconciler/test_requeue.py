"""Requeue of jobs that failed because their instance was lost.

A job that failed by itself is not requeued.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from slurmplugins.errors import SlurmUnreachable
from slurmplugins.model import hostlist
from slurmplugins.model.node import EndedJob
from slurmplugins.power_save.resume import resume
from slurmplugins.reconciler import requeue
from slurmplugins.reconciler.requeue import InstanceLoss, jobs_to_requeue
from slurmplugins.reconciler.run import run_pass
from slurmplugins.slurm import json_parser
from slurmplugins.system.log_events import LogEvent
from tests.fakes.engine import Bench

if TYPE_CHECKING:
    from pathlib import Path

G = hostlist.expand("gpu-[001-008]")
LOSS = InstanceLoss(G[1], "i-0abc", 1000.0)
JOB = EndedJob(7, frozenset({"FAILED"}), "gpu-[001-002]", 1010.0, 1, requeue=True)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    resume(made.engine, [made.slurm.start(7, G[:2])])
    made.clock.advance(10)
    made.boot()
    return made


def passes(bench: Bench, seconds: float) -> None:
    for _ in range(int(seconds // 15)):
        bench.clock.advance(15)
        bench.slurm.tick()
        run_pass(bench.engine)


def test_a_job_whose_peers_failed_before_slurm_knew_comes_back(bench: Bench):
    bench.cloud.interrupt(bench.cloud.live()[1].id)
    bench.slurm.fail(7)
    passes(bench, 15)
    assert bench.slurm.queue[7].state == "PENDING"
    assert "requeued: it ended as it lost node gpu-002" in bench.slurm.queue[7].comment


def test_the_job_is_requeued_when_the_instance_goes_after_it(bench: Bench):
    """Fail a job 100 seconds before EC2 takes its instance.

    The job's processes failed on the interruption notice. EC2 took the instance two minutes
    after the notice.
    """
    bench.slurm.fail(7)
    bench.clock.advance(100)
    bench.cloud.interrupt(bench.cloud.live()[0].id)
    passes(bench, 15)
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_failed_job_on_healthy_instances_stays_failed_and_slurm_is_not_asked(bench: Bench):
    bench.slurm.fail(7)
    passes(bench, 60)
    assert 7 in bench.slurm.over
    assert bench.slurm.asked_for_ended == 0


def test_instances_that_the_toolkit_terminates_requeue_no_job(bench: Bench):
    bench.slurm.fail(7)
    for node in G[:2]:
        bench.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    passes(bench, 150)
    assert bench.cloud.live() == []
    assert 7 in bench.slurm.over


def test_a_node_that_stopped_responding_is_evidence_too(bench: Bench):
    bench.slurm.fail(7)
    bench.slurm.state[G[0]].flags.add("NOT_RESPONDING")
    passes(bench, 15)
    assert bench.slurm.queue[7].state == "PENDING"


def test_what_fails_again_is_not_requeued_for_the_same_instance(bench: Bench):
    bench.cloud.interrupt(bench.cloud.live()[1].id)
    bench.slurm.fail(7)
    passes(bench, 15)
    again = dataclasses.replace(
        JOB, ended_at=bench.clock.now(), admin_comment=bench.slurm.queue.pop(7).comment
    )
    bench.slurm.over[7] = again
    passes(bench, 15)
    assert 7 in bench.slurm.over


def test_when_slurm_does_not_say_the_pass_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    def silent() -> None:
        raise SlurmUnreachable("busy")

    monkeypatch.setattr(bench.slurm, "ended_jobs", silent)
    bench.cloud.interrupt(bench.cloud.live()[1].id)
    bench.slurm.fail(7)
    passes(bench, 15)
    assert bench.events(LogEvent.ENDED_JOB_QUERY_FAILED)


def test_a_failed_job_on_a_nodes_next_instance_is_no_victim_of_the_one_before(bench: Bench):
    """Fail a job on the instance after an interrupted one.

    EC2 lists an instance for an hour after its end, and may not say the time of that end.
    """
    bench.slurm.finish(7)
    lost = bench.cloud.live()[1].id
    bench.cloud.interrupt(lost)
    passes(bench, 30)
    fake = bench.cloud.machines[lost]
    fake.instance = dataclasses.replace(fake.instance, ended_at=None)
    bench.clock.advance(60)
    resume(bench.engine, [bench.slurm.start(8, G[1:2])])
    bench.clock.advance(10)
    bench.boot()
    began = bench.clock.now()
    bench.clock.advance(10)
    bench.slurm.fail(8)
    bench.slurm.over[8] = dataclasses.replace(bench.slurm.over[8], started_at=began)
    passes(bench, 60)
    assert 8 in bench.slurm.over


@pytest.mark.parametrize(
    "job",
    [
        dataclasses.replace(JOB, flags=frozenset({"CANCELLED"})),
        dataclasses.replace(JOB, flags=frozenset({"TIMEOUT"})),
        dataclasses.replace(JOB, flags=frozenset({"COMPLETED"})),
        dataclasses.replace(JOB, code=93),
        dataclasses.replace(JOB, requeue=False),
        dataclasses.replace(JOB, nodes="gpu-[003-004]"),
        dataclasses.replace(JOB, nodes="login[1-2],x"),
        dataclasses.replace(JOB, ended_at=LOSS.at - requeue.SECONDS_BEFORE_LOSS - 1),
        dataclasses.replace(JOB, ended_at=LOSS.at + requeue.SECONDS_AFTER_LOSS + 1),
        dataclasses.replace(JOB, started_at=LOSS.at + 1, ended_at=LOSS.at + 10),
        dataclasses.replace(JOB, admin_comment="toolkit: requeued: lost gpu-002 (i-0abc)"),
    ],
)
def test_a_job_that_failed_for_another_reason_is_not_requeued(job: EndedJob):
    assert len(jobs_to_requeue([JOB], [LOSS])) == 1
    assert jobs_to_requeue([job], [LOSS]) == ()


def test_a_job_is_read_as_slurm_24_11_prints_it():
    item = {
        "job_id": 12, "job_state": ["FAILED"], "nodes": "gpu-001", "batch_flag": True,
        "start_time": {"set": True, "infinite": False, "number": 1699999000},
        "end_time": {"set": True, "infinite": False, "number": 1700000000},
        "exit_code": {"status": ["ERROR"], "return_code": {"set": True, "number": 93},
                      "signal": {"id": {"set": False, "number": 0}, "name": ""}},
        "requeue": True, "admin_comment": "",
    }  # fmt: skip
    read = json_parser.ended_job(item)
    assert read == EndedJob(
        12,
        frozenset({"FAILED"}),
        "gpu-001",
        1700000000.0,
        93,
        requeue=True,
        started_at=1699999000.0,
    )
    assert json_parser.ended_job({**item, "batch_flag": False}) is None
    killed = {**item, "exit_code": {"status": ["SIGNALED"], "return_code": {"number": 0}}}
    assert json_parser.ended_job(killed).code is None
