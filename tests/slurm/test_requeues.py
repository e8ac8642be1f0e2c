"""Training jobs that are cancelled, fail, are held, preempted or lose instances."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.instances import driver_and_machine
from tests.slurm.training_job import HOME, SAVE_EVERY, TORCHRUN, TrainingJob, slow, submit
from tests.slurm.waiting import until
from toolkit.training.requeue.failure_cause import Evidence
from toolkit.training.requeue.failure_rules import classify
from toolkit.training.slurm.job import SlurmJob

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SMOKE = "/shared/jobscripts/smoke.sbatch"
NETWORK_ERROR = "RuntimeError: NCCL error in: ncclRemoteError: A call failed, network error"
# The script fails as after a network error, but only in the job's first attempt.
FLAKY = f"""
import os, sys
if not os.environ.get("SLURM_RESTART_COUNT"):
    print({NETWORK_ERROR!r}, file=sys.stderr)
    sys.exit(1)
"""
FAILING = """
from toolkit.training import Run
with Run(params={}, seed=0):
    raise ValueError('a mistake in the script')
"""
ONE_NODE = ("--nodes=1",)
DELAY = re.compile(r"is requeued, and starts in (\d+) s")
LITTLE_MEMLOCK = ("prlimit", "--memlock=65536:65536")
"""A shell that may lock as little memory as an old head node's."""
NODE_FAILURE = "node-failure"
GATE = f"{HOME}/gate-of-survivor"


def stop_machine(cluster, node: str) -> None:
    """Stop the machine behind a node as a power cut would."""
    driver, machine = driver_and_machine(cluster, node)
    driver.stop(machine, grace=0)


def interrupt_without_agent(cluster, node: str) -> None:
    """Interrupt a node's instance while its node agent is stopped.

    The agent does not see the interruption notice.
    """
    driver, machine = driver_and_machine(cluster, node)
    done = driver.execute(machine, ["systemctl", "stop", "slurm-node-agent.service"], timeout=30)
    assert done.returncode == 0, done.stderr
    toolkit("local", "interrupt", node, "--notice", "120")


@dataclass(frozen=True)
class Jobs:
    """Jobs that run at the same time, because each has long waits.

    The waits are for instances, for Slurm's KillWait, for a delay or for the head node.
    """

    smoke: TrainingJob
    cancelled: TrainingJob
    flaky: TrainingJob
    failing: TrainingJob
    costly: TrainingJob
    missed_notice: TrainingJob
    step_before_notice: int  # steps of `missed_notice` at its notice


@pytest.fixture(scope="module")
def jobs(cluster):
    """The submitted jobs, of which two are disturbed while they train.

    One is cancelled, and one gets an interruption notice.
    """
    flaky = cluster.write(f"{HOME}/flaky.py", FLAKY)
    failing = cluster.write(f"{HOME}/wrong.py", FAILING)
    missed_notice, cancelled = slow(cluster, *ONE_NODE), slow(cluster, *ONE_NODE)
    others = {
        "costly": slow(cluster, *ONE_NODE, "--export=ALL,TOOLKIT_MAX_USD=0.000001"),
        "flaky": submit(cluster, *ONE_NODE, TORCHRUN, flaky),
        "failing": submit(cluster, *ONE_NODE, TORCHRUN, failing),
        "smoke": submit(
            cluster,
            *("--nodes=4", "--gpus-per-node=1", "--export=ALL,TOOLKIT_MIN_DISK_MIB_S=0", SMOKE),
            before=LITTLE_MEMLOCK,
        ),
    }
    cancelled.trained(10)
    # On a busy machine a job may train before MLflow answers; killed then, it leaves no run.
    until("the run of the job to be cancelled", cancelled.run)
    cluster.as_user("scancel", cancelled.number)
    step_before_notice = missed_notice.trained(20)
    interrupt_without_agent(cluster, missed_notice.nodes()[0])
    return Jobs(
        **others,
        cancelled=cancelled,
        missed_notice=missed_notice,
        step_before_notice=step_before_notice,
    )


def test_an_error_in_the_script_fails_the_job_at_once_with_its_exit_code(jobs):
    assert jobs.failing.ended() == {"FAILED"}
    assert len(jobs.failing.attempts()) == 1
    assert jobs.failing.record()["exit_code"]["return_code"]["number"] == 1


def test_a_network_failure_requeues_the_job_after_a_delay(jobs):
    until("the requeue", lambda: jobs.flaky.record()["restart_cnt"] == 1)
    waiting = jobs.flaky.record()
    assert "transient" in waiting["comment"], waiting["comment"]
    line = until("the delay in its log", lambda: DELAY.search(jobs.flaky.output()))
    delay = int(line[1])
    assert 20 < delay < 40  # 30 s with jitter
    asked = jobs.flaky.attempts()[0]["ended_at"] + delay
    assert jobs.flaky.record()["eligible_time"]["number"] > asked - 2, "whole seconds"
    assert jobs.flaky.ended() == {"COMPLETED"}, jobs.flaky.output()


def test_the_smoke_test_passes_on_four_nodes(jobs):
    assert jobs.smoke.ended() == {"COMPLETED"}, jobs.smoke.output()


def test_a_job_may_lock_as_much_memory_as_slurmd_though_the_submitting_shell_may_not(cluster, jobs):
    """Compare with a service of the head node, whose limit is slurmd's.

    It is `unlimited` where the test host may raise limits, and 8 MiB elsewhere.
    """
    limits = ("--property=LimitMEMLOCK=infinity", "bash", "-c", "ulimit -l")
    slurmd_limit = cluster.run("systemd-run", "--wait", "--pipe", "--quiet", *limits).strip()
    assert slurmd_limit != "64"
    assert jobs.smoke.ended() == {"COMPLETED"}, jobs.smoke.output()
    assert jobs.smoke.output().count(f"memory that a process may lock: {slurmd_limit}\n") == 4


def test_a_job_with_all_gpus_of_its_nodes_has_all_of_their_cpus(cluster, jobs):
    """Read the CPUs of a job that requests four nodes alone.

    Each of its nodes has one GPU and four CPUs.
    """
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--format=AllocTRES")
    tres = cluster.run(*argv, f"--jobs={jobs.smoke.number}")
    assert "cpu=16" in tres.strip().split(",")


def test_a_job_over_its_cost_limit_is_held_after_a_save_and_resumes_when_released(cluster, jobs):
    job = jobs.costly
    step_before = job.trained(20)
    cluster.as_user("scancel", "--signal=USR1", "--batch", job.number)
    until("the hold", lambda: job.record()["hold"])
    assert "held: $" in job.record()["comment"], job.record()["comment"]
    assert "scontrol release" in cluster.toolkit("why", job.number).stdout

    cluster.as_user("scontrol", "release", job.number)
    assert job.attempt(1)["step_start"] >= step_before
    job.trained(step_before + 20)
    cluster.as_user("scancel", job.number)


def test_the_head_node_forwards_an_interruption_notice_that_the_node_agent_missed(cluster, jobs):
    job = jobs.missed_notice
    until("the requeue", lambda: job.record()["restart_cnt"] == 1)
    assert "asked to save and stop" in job.record()["admin_comment"]
    assert job.attempt(1)["step_start"] >= jobs.step_before_notice
    assert job.causes() == ["spot-interruption"]
    cluster.as_user("scancel", job.number)


@dataclass(frozen=True)
class JobsOfTwoNodes:
    """Two jobs of two nodes each."""

    survivor: TrainingJob
    headless: TrainingJob  # the node of its batch script is lost


@pytest.fixture(scope="module")
def jobs_of_two_nodes(cluster):
    survivor, headless = slow(cluster, gate=GATE), slow(cluster)
    headless.trained(3 * SAVE_EVERY)
    stop_machine(cluster, headless.nodes()[0])
    yield JobsOfTwoNodes(survivor, headless)
    # A failed test may leave these jobs, and they would keep nodes from later tests.
    for job in (survivor, headless):
        cluster.as_user("scancel", "--quiet", job.number)


def preempt(survivor: TrainingJob, *argv: str) -> None:
    """Preempt a training job with a short one; await its second attempt.

    The training job saves before it is requeued.
    """
    survivor.running()
    step_before = survivor.trained(40)
    node = survivor.nodes()[0]
    urgent = submit(
        survivor.cluster, *argv, f"--nodelist={node}", "--gpus-per-node=1", "--wrap=true"
    )
    assert urgent.ended() == {"COMPLETED"}
    until("the requeue", lambda: survivor.record()["restart_cnt"] == 1)
    survivor.running()
    assert survivor.attempt(1)["step_start"] >= step_before
    assert survivor.causes() == ["preemption"]


def test_a_preempted_job_saves_and_is_requeued(cluster, jobs_of_two_nodes):
    preempt(jobs_of_two_nodes.survivor, "--partition=urgent")


def causes_by_accounting(cluster, node: str, since: float) -> set[str]:
    """Return the causes that accounting's node events give, as the job's user.

    Accounting keeps the events long after the node is in service again.
    """
    job = SlurmJob("0", lambda argv: cluster.as_user(*argv))
    event_lines = [event.line for event in job.node_events([node], since)]
    return {classify(Evidence(nodes=line)).cause for line in event_lines}


def test_jobs_are_requeued_when_an_instance_dies_without_a_notice(cluster, jobs_of_two_nodes):
    """Stop a node of each job: a worker's, the batch script's."""
    survivor, headless = jobs_of_two_nodes.survivor, jobs_of_two_nodes.headless
    survivor.trained(survivor.attempt(1)["step_start"] + 40)
    stopped_node, at = survivor.nodes()[-1], time.time()
    stop_machine(cluster, stopped_node)

    for job, times in ((survivor, 2), (headless, 1)):
        until("the requeue", lambda job=job, times=times: job.record()["restart_cnt"] >= times)
    # slurmctld sends its events to slurmdbd with a delay.
    until("the event", lambda: NODE_FAILURE in causes_by_accounting(cluster, stopped_node, at))
    begun_at = headless.attempt(1)["step_start"]
    assert begun_at >= SAVE_EVERY
    assert begun_at % SAVE_EVERY == 0, "a periodic checkpoint: nobody could ask for another one"
    cluster.as_user("scancel", "--signal=USR1", "--batch", headless.number)
    until("what Slurm said", lambda: headless.causes() == [NODE_FAILURE, "preemption"])
    cluster.as_user("scancel", headless.number)
    cluster.as_user("touch", GATE)
    assert survivor.ended() == {"COMPLETED"}, survivor.output()


def test_a_cancelled_job_is_killed_in_mlflow(jobs):
    assert jobs.cancelled.ended() == {"CANCELLED"}
    until("MLflow's KILLED", lambda: (jobs.cancelled.run() or {}).get("status") == "KILLED")


def test_a_failed_job_is_failed_in_mlflow(jobs):
    """Wait last, beside the job above: slurmctld forgets the others' jobs meanwhile.

    While MLflow does not answer, a timer of the head node sends the status minutes later.
    """
    until("MLflow's FAILED", lambda: (jobs.failing.run() or {}).get("status") == "FAILED")
