"""Training jobs and every way of losing them: cancelled, failed, held, preempted, struck dead."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from ruamel.yaml import YAML

from tests.slurm.conftest import toolkit
from tests.slurm.instances import machine_of
from tests.slurm.training_job import HOME, SAVE_EVERY, TORCHRUN, TrainingJob, slow, submit
from tests.slurm.waiting import until
from toolkit.training.requeue.failure_cause import Evidence
from toolkit.training.requeue.failure_rules import classify
from toolkit.training.slurm.job import SlurmJob

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SMOKE = "/shared/jobscripts/smoke.sbatch"
NETWORK_ERROR = "RuntimeError: NCCL error in: ncclRemoteError: A call failed, network error"
# Fails as a broken network makes a job fail, but only on the first start of the job.
FLAKY = f"""
import os, sys
if not os.environ.get("SLURM_RESTART_COUNT"):
    print({NETWORK_ERROR!r}, file=sys.stderr)
    sys.exit(1)
"""
WRONG = """
from toolkit.training import Run
with Run(params={}, seed=0):
    raise ValueError('a mistake in the script')
"""
ONE = ("--nodes=1",)
NODE = "node-failure"
GATE = f"{HOME}/gate-of-survivor"


def strike(cluster, node: str) -> None:
    """End the machine behind a node as a power cut would."""
    driver, machine = machine_of(cluster, node)
    driver.stop(machine, grace=0)


def take_unheard(cluster, node: str) -> None:
    """A spot notice for a machine whose node agent is not there to see it."""
    driver, machine = machine_of(cluster, node)
    done = driver.execute(machine, ["systemctl", "stop", "slurm-node-agent.service"], timeout=30)
    assert done.returncode == 0, done.stderr
    toolkit("local", "interrupt", node, "--notice", "120")


@dataclass(frozen=True)
class Jobs:
    """All at once: each waits for machines, for Slurm's KillWait, for a delay or for the head."""

    smoke: TrainingJob
    cancelled: TrainingJob
    flaky: TrainingJob
    wrong: TrainingJob
    costly: TrainingJob
    unheard: TrainingJob
    reached: int  # steps of `unheard` when its notice came


@pytest.fixture(scope="module")
def jobs(cluster):
    """Submitted; one cancelled, and one with a notice, as soon as they train."""
    flaky = cluster.write(f"{HOME}/flaky.py", FLAKY)
    wrong = cluster.write(f"{HOME}/wrong.py", WRONG)
    unheard, cancelled = slow(cluster, *ONE), slow(cluster, *ONE)
    others = {
        "costly": slow(cluster, *ONE, "--export=ALL,TOOLKIT_MAX_USD=0.000001"),
        "flaky": submit(cluster, *ONE, TORCHRUN, flaky),
        "wrong": submit(cluster, *ONE, TORCHRUN, wrong),
        "smoke": submit(cluster, "--nodes=4", "--gpus-per-node=1", SMOKE),
    }
    cancelled.trained(10)
    cluster.as_user("scancel", cancelled.number)
    reached = unheard.trained(20)
    take_unheard(cluster, unheard.nodes()[0])
    return Jobs(**others, cancelled=cancelled, unheard=unheard, reached=reached)


def test_an_error_in_the_script_fails_the_job_at_once_with_its_exit_code(jobs):
    assert jobs.wrong.ended() == {"FAILED"}
    assert len(jobs.wrong.attempts()) == 1
    assert jobs.wrong.shown()["exit_code"]["return_code"]["number"] == 1
    until("MLflow's FAILED", lambda: (jobs.wrong.run() or {}).get("status") == "FAILED")


def test_a_network_failure_requeues_the_job_after_a_delay(jobs):
    until("the requeue", lambda: jobs.flaky.shown()["restart_cnt"] == 1)
    waiting = jobs.flaky.shown()
    assert "transient" in waiting["comment"], waiting["comment"]
    waits = waiting["eligible_time"]["number"] - waiting["submit_time"]["number"]
    assert waits > 20  # 30 s, spread; of itself Slurm waits for 11
    assert jobs.flaky.ended() == {"COMPLETED"}, jobs.flaky.output()


def test_the_smoke_test_passes_on_four_nodes(jobs):
    assert jobs.smoke.ended() == {"COMPLETED"}, jobs.smoke.output()


def test_a_job_with_all_gpus_of_its_nodes_has_all_of_their_cpus(cluster, jobs):
    """Four nodes of a GPU and four CPUs each, and nothing said of CPUs."""
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--format=AllocTRES")
    tres = cluster.run(*argv, f"--jobs={jobs.smoke.number}")
    assert "cpu=16" in tres.strip().split(",")


def test_a_job_over_its_cost_limit_is_held_after_a_save_and_resumes_when_released(cluster, jobs):
    job = jobs.costly
    reached = job.trained(20)
    cluster.as_user("scancel", "--signal=USR1", "--batch", job.number)
    until("the hold", lambda: job.shown()["hold"])
    assert "held: $" in job.shown()["comment"], job.shown()["comment"]
    assert "scontrol release" in cluster.toolkit("why", job.number).stdout

    cluster.as_user("scontrol", "release", job.number)
    assert job.attempt(1)["step_start"] >= reached
    job.trained(reached + 20)
    cluster.as_user("scancel", job.number)


def test_the_head_node_forwards_an_interruption_notice_that_the_node_agent_missed(cluster, jobs):
    job = jobs.unheard
    until("the requeue", lambda: job.shown()["restart_cnt"] == 1)
    assert "asked to save and stop" in job.shown()["admin_comment"]
    assert job.attempt(1)["step_start"] >= jobs.reached
    assert job.causes() == ["spot-interruption"]
    cluster.as_user("scancel", job.number)


@dataclass(frozen=True)
class Lost:
    """Two jobs of two nodes each."""

    survivor: TrainingJob
    headless: TrainingJob  # the machine that its batch script was on is gone


@pytest.fixture(scope="module")
def lost(cluster):
    survivor, headless = slow(cluster, gate=GATE), slow(cluster)
    headless.trained(3 * SAVE_EVERY)
    strike(cluster, headless.nodes()[0])
    yield Lost(survivor, headless)
    # A test that failed leaves no job that keeps its nodes from the tests after it.
    for job in (survivor, headless):
        cluster.as_user("scancel", "--quiet", job.number)


def preempt(survivor: TrainingJob, *argv: str) -> None:
    """Have a short job take a node of one that trains: that one saves and comes back."""
    survivor.running()
    reached = survivor.trained(40)
    node = survivor.nodes()[0]
    urgent = submit(
        survivor.cluster, *argv, f"--nodelist={node}", "--gpus-per-node=1", "--wrap=true"
    )
    assert urgent.ended() == {"COMPLETED"}
    until("the requeue", lambda: survivor.shown()["restart_cnt"] == 1)
    survivor.running()
    assert survivor.attempt(1)["step_start"] >= reached
    assert survivor.causes() == ["preemption"]


def test_a_preempted_job_saves_and_is_requeued(cluster, lost):
    preempt(lost.survivor, "--partition=urgent")


def causes_by_accounting(cluster, node: str, since: float) -> set[str]:
    """What a job can read, as its user, of what became of a node; long after it serves again."""
    job = SlurmJob("0", lambda argv: cluster.as_user(*argv))
    said = [event.line for event in job.node_events([node], since)]
    return {classify(Evidence(nodes=line)).cause for line in said}


def test_jobs_are_requeued_when_an_instance_dies_without_a_notice(cluster, lost):
    """One loses a worker, the other the node that its batch script is on."""
    survivor, headless = lost.survivor, lost.headless
    survivor.trained(survivor.attempt(1)["step_start"] + 40)
    struck, at = survivor.nodes()[-1], time.time()
    strike(cluster, struck)

    for job, times in ((survivor, 2), (headless, 1)):
        until("the requeue", lambda job=job, times=times: job.shown()["restart_cnt"] >= times)
    # slurmctld hands its events on to slurmdbd in its own time.
    until("the event", lambda: NODE in causes_by_accounting(cluster, struck, at))
    begun_at = headless.attempt(1)["step_start"]
    assert begun_at >= SAVE_EVERY
    assert begun_at % SAVE_EVERY == 0, "a periodic checkpoint: nobody could ask for another one"
    cluster.as_user("scancel", "--signal=USR1", "--batch", headless.number)
    until("what Slurm said", lambda: headless.causes() == [NODE, "preemption"])
    cluster.as_user("scancel", headless.number)
    cluster.as_user("touch", GATE)
    assert survivor.ended() == {"COMPLETED"}, survivor.output()


def test_a_cancelled_job_is_killed_in_mlflow(jobs):
    assert jobs.cancelled.ended() == {"CANCELLED"}
    until("MLflow's KILLED", lambda: (jobs.cancelled.run() or {}).get("status") == "KILLED")


def test_preemption_by_qos_works_after_an_apply(cluster):
    """Slurm has one kind at a time, and takes the other only when slurmctld starts anew."""
    yaml = YAML(typ="rt")
    wanted = yaml.load(cluster.config.read_text())
    del wanted["partitions"]["urgent"]["priority"]
    new = cluster.config.with_suffix(".new.yaml")
    with new.open("w") as file:
        yaml.dump(wanted, file)
    new.replace(cluster.config)  # whole at every moment: the other lane reads it, too
    cluster.toolkit("apply")
    for change in (
        ("modify", "qos", "normal", "set", "gracetime=120"),
        ("add", "qos", "urgent", "priority=100", "preempt=normal"),
        ("modify", "user", "ada", "set", "qos+=urgent"),
    ):
        cluster.run("sacctmgr", "--immediate", *change)

    job = slow(cluster, *ONE)
    preempt(job, "--qos=urgent")
    cluster.as_user("scancel", job.number)
