"""The jobs of a month on a real cluster: who submits what, and what EC2 does meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.slurm.conftest import REPOSITORY, toolkit
from tests.slurm.instances import LIVE, instances_of_pool
from tests.slurm.month_jobs import Job, Submitted, all_ended, quote_of, sleeps, submit
from tests.slurm.month_settings import POOLS
from tests.slurm.training_job import HOME, slow
from tests.slurm.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.slurm.conftest import Cluster

GATE = f"{HOME}/end-of-training"
BUDGET = ("runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-budget")
VISION, LANGUAGE, ROBOTICS = (f"--account={name}" for name in ("vision", "language", "robotics"))

RESNET = sleeps("resnet", "ada", 90, VISION, "--gpus=1", "--time=10", "--wckey=imagenet-v2")
SWEEP = sleeps("rates", "ada", 30, VISION, "--array=0-5", "--qos=sweep", "--gpus=1", "--time=5")
VIT = sleeps("vit", "mary", 100, VISION, "--partition=large", "--gpus=4", "--time=10")
HALF = sleeps("probe", "mary", 60, VISION, "--partition=large", "--gpus=2", "--time=5")
TOKENS = sleeps(
    "tokens", "mary", 60, LANGUAGE, "--partition=cpu", "--cpus-per-task=8", "--time=10",
    "--wckey=corpus",
)  # fmt: skip
LLM = sleeps(
    "llm", "grace", 80, LANGUAGE, "--partition=steady", "--nodes=2", "--gpus-per-node=4",
    "--time=10",
)  # fmt: skip
FAILS = Job("broken", "grace", (LANGUAGE, "--partition=cpu", "--time=5"), "sleep 15\nexit 3")
CANCELLED = sleeps("regretted", "grace", 600, LANGUAGE, "--gpus=1", "--time=20")
ROBOT = sleeps("grasp", "linus", 200, ROBOTICS, "--partition=steady", "--gpus=4", "--time=5")
MORE_ROBOT = sleeps("walk", "linus", 60, ROBOTICS, "--partition=steady", "--gpus=4", "--time=5")
TRAINING = Job("training", "ada", (VISION, "--wckey=imagenet-v2", "--time=30"), "")
TORCHRUN = REPOSITORY / "jobscripts/torchrun.sbatch"
FIRST = (RESNET, SWEEP, VIT, TOKENS, FAILS)
AGAIN = (RESNET, SWEEP, VIT, TOKENS, HALF)


def run_jobs(cluster: Cluster, folder: Path) -> list[Submitted]:
    """Let three accounts work, and return their jobs."""
    first = submit_all(cluster, FIRST, folder)
    cancelled = submit(cluster, CANCELLED, folder)
    until("the job to cancel", lambda: cluster.job(cancelled.number)["job_state"] == ["RUNNING"])
    cluster.run("scancel", cancelled.number)
    all_ended(cluster, first)
    jobs = [*first, cancelled, *dollar(cluster, folder), interrupted_training(cluster)]
    write_records(cluster)  # so that the next quotes know the first round
    again = submit_all(cluster, AGAIN, folder)
    all_ended(cluster, again)
    jobs += [*again, *fallback(cluster, folder)]
    for pool in POOLS:
        until(
            f"no instance of {pool}", lambda pool=pool: not instances_of_pool(cluster, pool, *LIVE)
        )
    write_records(cluster)
    return jobs


def submit_all(cluster: Cluster, jobs: Sequence[Job], folder: Path) -> list[Submitted]:
    """Submit jobs one after the other, each with its quote."""
    return [submit(cluster, job, folder) for job in jobs]


def write_records(cluster: Cluster) -> None:
    """Let the head write its records now."""
    cluster.run("systemctl", "start", "slurm-records.service", timeout=600)


def dollar(cluster: Cluster, folder: Path) -> list[Submitted]:
    """Let an account spend its dollar, wait, and go on."""
    first = submit(cluster, ROBOT, folder)
    language = submit(cluster, LLM, folder)
    all_ended(cluster, [first])
    cluster.run(*BUDGET)
    second = submit(cluster, MORE_ROBOT, folder)

    def is_held() -> bool:
        reason = cluster.job(second.number)["state_reason"]
        return str(reason).startswith("AssocGrpBilling")

    until("the job that the dollar does not cover", is_held)
    cluster.toolkit(
        "budget", "override", "robotics-month", "--usd", "2", "--until", "6h",
        "--reason", "demonstration for the funder",
    )  # fmt: skip
    all_ended(cluster, [second, language])
    return [first, second, language]


def interrupted_training(cluster: Cluster) -> Submitted:
    """Train on two spot nodes, of which EC2 takes one."""
    quote = quote_of(cluster, TRAINING.options, TORCHRUN)
    job = slow(cluster, *TRAINING.options, gate=GATE)
    job.running()
    job.trained(25)
    toolkit("local", "interrupt", job.nodes()[-1])
    until("the requeue", lambda: job.record()["restart_cnt"] == 1)
    job.running()
    job.trained(5)
    cluster.as_user("touch", GATE)
    assert "COMPLETED" in job.ended(), job.output()[-3000:]
    assert len(job.attempts()) == 2, job.attempts()
    return Submitted(TRAINING, job.number, quote)


def fallback(cluster: Cluster, folder: Path) -> list[Submitted]:
    """Run a job while EC2 has no spot instance of its type."""
    until("no instance of gpu", lambda: not instances_of_pool(cluster, "gpu", *LIVE))
    toolkit("local", "exhaust", "g5.xlarge/*/spot")
    try:
        (job,) = submit_all(cluster, [RESNET], folder)
        all_ended(cluster, [job])
    finally:
        toolkit("local", "exhaust", "g5.xlarge/*/spot", "--restore")
    return [job]
